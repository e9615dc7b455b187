"use strict";
/* The page of `hb bench`. */
