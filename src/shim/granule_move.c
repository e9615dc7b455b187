/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves of granules (granules.h): all or nothing. New memory is created and filled
 * beside the old; then it takes the old one's place, granule by granule, and the old
 * memory is kept until the last one is exchanged.
 *
 *   PREPARED   the new memory exists. Allocations may still leave the move
 *   ACTIVE     copies run, then the exchange. An allocation that is to be freed waits
 *   EXCHANGED  every granule has its new memory
 *   BROKEN     the exchange failed, and undoing it failed too
 *
 * The table of ranges changes only when every granule is exchanged, so that whatever
 * reads it never sees half a move.
 */
#include "shim/granules_priv.h"

#include <stdlib.h>

enum move_state { MOVE_PREPARED, MOVE_ACTIVE, MOVE_EXCHANGED, MOVE_BROKEN };

/* Says which memory is mapped at a granule's address: the old, none, or the new. */
enum item_state { ITEM_OLD, ITEM_HOLE, ITEM_NEW };

struct move_item {
	struct granule_range *range; /* NULL: was freed or pinned, so it does not move */
	size_t index;                /* in the range */
	CUdeviceptr address;
	size_t bytes;
	CUdeviceptr scratch;          /* in the scratch range; 0 = `fresh` is mapped elsewhere */
	struct hb_granule_kind local; /* of the range */
	struct granule fresh;         /* the new memory; after the exchange, the old */
	bool made, mapped;            /* `fresh` exists; it is mapped in the scratch range */
	bool touched;                 /* the exchange began with it and is not undone */
	enum item_state state;
};

struct hb_granule_move {
	struct hb_granules *granules;
	enum move_state state;
	CUmemLocation to;
	size_t bytes; /* that it takes */
	CUdeviceptr scratch;
	size_t scratch_bytes;
	CUstream stream;
	bool copying, copied;
	struct hb_granule_move *next; /* in hb_granules.unfinished */
	size_t n;
	struct move_item items[];
};

static const struct hb_granule_driver *driver_of(const struct hb_granule_move *move)
{
	return move->granules->config.driver;
}

static struct granule *granule_of(const struct move_item *item)
{
	return &item->range->granules[item->index];
}

/* ---- begin ---- */

/* What a move takes. */
struct move_choice {
	const CUmemLocation *from; /* NULL: what is elsewhere of the allocation around `address` */
	CUdeviceptr address;
	size_t bytes; /* or all, if there is less */
	bool newest_first;
};

static bool is_same_place(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && (hb_is_host(a) || a->id == b->id);
}

static size_t count_granules(const struct hb_granules *granules)
{
	size_t n = 0;
	for (size_t i = 0; i < granules->n_ranges; i++)
		n += granules->ranges[i]->n;
	return n;
}

static bool is_chosen(const struct hb_granules *granules, const struct granule *granule,
		      const struct move_choice *choice)
{
	if (granule->moves)
		return false;
	return choice->from ? is_same_place(&granule->place, choice->from) : !hb_is_home(granules, &granule->place);
}

static void add_items(const struct hb_granules *granules, struct hb_granule_move *move, struct granule_range *range,
		      const struct move_choice *choice)
{
	CUdeviceptr address = range->base;
	for (size_t i = 0; i < range->n && move->bytes < choice->bytes; i++) {
		struct granule *granule = &range->granules[i];
		if (is_chosen(granules, granule, choice)) {
			granule->moves = true;
			move->items[move->n++] = (struct move_item){.range = range,
								    .index = i,
								    .address = address,
								    .bytes = granule->bytes,
								    .local = range->local};
			move->bytes += granule->bytes;
		}
		address += granule->bytes;
	}
}

/* With the lock held. Returns a move with the granules to be moved; NULL: out of memory. */
static struct hb_granule_move *choose_granules(const struct hb_granules *granules, const struct move_choice *choice)
{
	size_t n = 0, room = count_granules(granules);
	struct hb_granule_move *move = calloc(1, sizeof(*move) + room * sizeof(move->items[0]));
	struct granule_range *range = choice->from ? NULL : hb_granules_find_range(granules, choice->address);
	if (move && range)
		add_items(granules, move, range, choice);
	if (!move || !choice->from)
		return move;
	struct granule_range **list = hb_granules_list(granules, choice->newest_first, &n);
	if (!list) {
		free(move);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		add_items(granules, move, list[i], choice);
	free(list);
	return move;
}

static CUresult make_memory(struct hb_granule_move *move)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < move->n && result == CUDA_SUCCESS; i++) {
		struct move_item *item = &move->items[i];
		result = hb_granule_make(move->granules, &move->to, item->local, item->bytes, &item->fresh);
		item->made = result == CUDA_SUCCESS;
	}
	return result;
}

/* Maps in the scratch range what is mapped nowhere. Its granules follow each other there. */
static CUresult map_memory(struct hb_granule_move *move)
{
	CUresult result = CUDA_SUCCESS;
	size_t bytes = 0;
	for (size_t i = 0; i < move->n; i++)
		bytes += move->items[i].fresh.ready ? 0 : move->items[i].bytes;
	if (bytes)
		result = driver_of(move)->address_reserve(&move->scratch, bytes, 0, 0, 0);
	if (!bytes || result != CUDA_SUCCESS) {
		move->scratch = 0;
		return result;
	}
	move->scratch_bytes = bytes;
	bytes = 0;
	for (size_t i = 0; i < move->n && result == CUDA_SUCCESS; i++) {
		struct move_item *item = &move->items[i];
		if (item->fresh.ready)
			continue;
		item->scratch = move->scratch + bytes;
		bytes += item->bytes;
		result = driver_of(move)->map(item->scratch, item->bytes, 0, item->fresh.handle, 0);
		item->mapped = result == CUDA_SUCCESS;
	}
	return result == CUDA_SUCCESS ? hb_granules_set_access(move->granules, move->scratch, bytes) : result;
}

/* Creates the new memory, and maps it somewhere to be filled. */
static CUresult prepare_memory(struct hb_granule_move *move)
{
	CUresult result = make_memory(move);
	return result == CUDA_SUCCESS ? map_memory(move) : result;
}

/* With the lock held. The place in granules->moves that has this move, or NULL. */
static struct hb_granule_move **find_place(struct hb_granules *granules, const struct hb_granule_move *move)
{
	for (size_t i = 0; i < HB_GRANULE_MOVES; i++)
		if (granules->moves[i] == move)
			return &granules->moves[i];
	return NULL;
}

static CUresult begin_move(struct hb_granules *granules, const struct move_choice *choice, const CUmemLocation *to,
			   struct hb_granule_move **move_out)
{
	CUresult result = CUDA_SUCCESS;
	hb_granules_retry_leaked(granules);
	pthread_mutex_lock(&granules->lock);
	struct hb_granule_move **free_place = find_place(granules, NULL);
	struct hb_granule_move *move = free_place ? choose_granules(granules, choice) : NULL;
	if (!free_place)
		result = CUDA_ERROR_NOT_READY;
	else if (!move)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!move->n)
		result = CUDA_ERROR_NOT_FOUND;
	else
		*free_place = move;
	pthread_mutex_unlock(&granules->lock);
	if (result != CUDA_SUCCESS) {
		free(move);
		return result;
	}
	move->granules = granules;
	move->to = *to;
	result = prepare_memory(move);
	if (result == CUDA_SUCCESS)
		*move_out = move;
	else
		hb_granule_move_end(move);
	return result;
}

CUresult hb_granule_move_begin(struct hb_granules *granules, const CUmemLocation *from, const CUmemLocation *to,
			       size_t bytes, struct hb_granule_move **move_out)
{
	const struct move_choice choice = {.from = from, .bytes = bytes, .newest_first = !hb_is_home(granules, to)};
	return begin_move(granules, &choice, to, move_out);
}

CUresult hb_granule_move_begin_home(struct hb_granules *granules, CUdeviceptr address, size_t bytes,
				    struct hb_granule_move **move_out)
{
	const CUmemLocation home = {CU_MEM_LOCATION_TYPE_DEVICE, granules->config.device};
	return begin_move(granules, &(struct move_choice){.address = address, .bytes = bytes}, &home, move_out);
}

size_t hb_granule_move_bytes(struct hb_granule_move *move)
{
	size_t bytes = 0;
	pthread_mutex_lock(&move->granules->lock);
	for (size_t i = 0; i < move->n; i++)
		if (move->items[i].range)
			bytes += move->items[i].bytes;
	pthread_mutex_unlock(&move->granules->lock);
	return bytes;
}

static bool moves_range(const struct hb_granule_move *move, const struct granule_range *range)
{
	for (size_t i = 0; move && i < move->n; i++)
		if (move->items[i].range == range)
			return true;
	return false;
}

static struct hb_granule_move *find_move_of(const struct hb_granules *granules, const struct granule_range *range)
{
	for (size_t i = 0; i < HB_GRANULE_MOVES; i++)
		if (moves_range(granules->moves[i], range))
			return granules->moves[i];
	return NULL;
}

void hb_granule_move_leave_out(struct hb_granules *granules, const struct granule_range *range)
{
	struct hb_granule_move *move;
	while ((move = find_move_of(granules, range))) {
		if (move->state != MOVE_PREPARED) {
			pthread_cond_wait(&granules->move_ended, &granules->lock);
			continue;
		}
		for (size_t i = 0; i < move->n; i++)
			if (move->items[i].range == range) {
				granule_of(&move->items[i])->moves = false;
				move->items[i].range = NULL;
			}
	}
}

/* ---- copy ---- */

CUresult hb_granule_move_copy(struct hb_granule_move *move, CUstream stream)
{
	if (move->state != MOVE_PREPARED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&move->granules->lock);
	move->state = MOVE_ACTIVE;
	pthread_mutex_unlock(&move->granules->lock);
	move->stream = stream;
	for (size_t i = 0; i < move->n; i++) {
		const struct move_item *item = &move->items[i];
		if (!item->range)
			continue;
		move->copying = true;
		CUresult result = driver_of(move)->copy(item->scratch ? item->scratch : item->fresh.ready,
							item->address, item->bytes, stream);
		if (result != CUDA_SUCCESS)
			return result;
	}
	move->copied = true;
	return CUDA_SUCCESS;
}

CUresult hb_granule_move_poll(struct hb_granule_move *move)
{
	if (!move->copied)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = move->copying ? driver_of(move)->query(move->stream) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		move->copying = false;
	return result;
}

/* ---- exchange ---- */

static CUresult map_item(const struct hb_granule_move *move, struct move_item *item, enum item_state wanted)
{
	const struct granule *granule = wanted == ITEM_NEW ? &item->fresh : granule_of(item);
	CUresult result = CUDA_SUCCESS;
	item->touched = true;
	if (item->state != ITEM_HOLE && item->state != wanted) {
		result = driver_of(move)->unmap(item->address, item->bytes);
		if (result == CUDA_SUCCESS)
			item->state = ITEM_HOLE;
	}
	if (result == CUDA_SUCCESS && item->state == ITEM_HOLE) {
		result = driver_of(move)->map(item->address, item->bytes, 0, granule->handle, 0);
		if (result == CUDA_SUCCESS)
			item->state = wanted;
	}
	return result == CUDA_SUCCESS ? hb_granules_set_access(move->granules, item->address, item->bytes) : result;
}

static void commit_exchange(struct hb_granule_move *move)
{
	pthread_mutex_lock(&move->granules->lock);
	for (size_t i = 0; i < move->n; i++) {
		struct move_item *item = &move->items[i];
		if (!item->range)
			continue;
		struct granule old = *granule_of(item);
		*granule_of(item) = item->fresh;
		granule_of(item)->moves = true;
		item->fresh = old;
		item->fresh.moves = false;
	}
	move->state = MOVE_EXCHANGED;
	pthread_mutex_unlock(&move->granules->lock);
}

CUresult hb_granule_move_undo(struct hb_granule_move *move)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = move->n; i-- > 0 && result == CUDA_SUCCESS;)
		if (move->items[i].touched) {
			result = map_item(move, &move->items[i], ITEM_OLD);
			move->items[i].touched = result != CUDA_SUCCESS;
		}
	pthread_mutex_lock(&move->granules->lock);
	move->state = result == CUDA_SUCCESS ? MOVE_ACTIVE : MOVE_BROKEN;
	pthread_mutex_unlock(&move->granules->lock);
	return result;
}

CUresult hb_granule_move_exchange(struct hb_granule_move *move)
{
	CUresult result = CUDA_SUCCESS;
	if (move->state != MOVE_ACTIVE || !move->copied || move->copying)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < move->n && result == CUDA_SUCCESS; i++)
		if (move->items[i].range)
			result = map_item(move, &move->items[i], ITEM_NEW);
	if (result == CUDA_SUCCESS)
		commit_exchange(move);
	else
		(void)hb_granule_move_undo(move);
	return result;
}

bool hb_granule_move_is_broken(const struct hb_granule_move *move)
{
	return move->state == MOVE_BROKEN;
}

/* ---- end ---- */

/*
 * Returns true when nothing is left to give back. `unmap`: also the scratch range. New memory that is not used is given back when
 * the scratch range no longer maps it.
 */
static bool give_back(struct hb_granule_move *move, bool unmap)
{
	bool all = true;
	for (size_t i = 0; i < move->n; i++) {
		struct move_item *item = &move->items[i];
		if (unmap && item->mapped && driver_of(move)->unmap(item->scratch, item->bytes) == CUDA_SUCCESS)
			item->mapped = false;
		all &= !item->mapped;
		bool unused = item->state == ITEM_NEW ||
			      !item->mapped; /* `fresh` is the old memory, or mapped nowhere */
		if (item->made && unused && move->state != MOVE_BROKEN) {
			hb_granule_put_away(move->granules, &item->fresh);
			item->made = false;
		}
	}
	if (all && move->scratch && driver_of(move)->address_free(move->scratch, move->scratch_bytes) == CUDA_SUCCESS)
		move->scratch = 0;
	return all && !move->scratch;
}

/* Memory on a peer may stay mapped in the scratch range for a while: it takes no room that another program waits for. */
static bool can_wait(const struct hb_granule_move *move)
{
	return move->state == MOVE_EXCHANGED && !hb_is_host(&move->to) && !hb_is_home(move->granules, &move->to);
}

/* Returns whether a move was finished. */
static bool finish_moves(struct hb_granules *granules, bool all)
{
	bool any = false;
	pthread_mutex_lock(&granules->lock);
	struct hb_granule_move *move = granules->unfinished;
	granules->unfinished = NULL;
	pthread_mutex_unlock(&granules->lock);
	while (move) {
		struct hb_granule_move *next = move->next;
		bool finished = give_back(move, all || !can_wait(move));
		any |= finished;
		pthread_mutex_lock(&granules->lock);
		if (!finished) {
			move->next = granules->unfinished;
			granules->unfinished = move;
		}
		pthread_mutex_unlock(&granules->lock);
		if (finished)
			free(move);
		move = next;
	}
	return any;
}

bool hb_granule_moves_finish(struct hb_granules *granules)
{
	return finish_moves(granules, true);
}

void hb_granule_moves_retry(struct hb_granules *granules)
{
	(void)finish_moves(granules, false);
}

size_t hb_granule_moves_count_unfinished(const struct hb_granules *granules)
{
	size_t bytes = 0;
	for (const struct hb_granule_move *move = granules->unfinished; move; move = move->next)
		for (size_t i = 0; i < move->n; i++)
			bytes += move->items[i].made ? move->items[i].bytes : 0;
	return bytes;
}

void hb_granule_moves_forget(struct hb_granules *granules)
{
	struct hb_granule_move *next;
	for (struct hb_granule_move *move = granules->unfinished; move; move = next) {
		next = move->next;
		free(move);
	}
}

void hb_granule_move_wait(struct hb_granule_move *move)
{
	if (move->copying)
		(void)driver_of(move)->synchronize(move->stream);
	move->copying = false;
}

void hb_granule_move_end(struct hb_granule_move *move)
{
	struct hb_granules *granules = move->granules;
	hb_granule_move_wait(move);
	pthread_mutex_lock(&granules->lock);
	for (size_t i = 0; i < move->n; i++)
		if (move->items[i].range)
			granule_of(&move->items[i])->moves = false;
	move->next = granules->unfinished;
	granules->unfinished = move;
	*find_place(granules, move) = NULL;
	pthread_cond_broadcast(&granules->move_ended);
	pthread_mutex_unlock(&granules->lock);
	hb_granule_moves_retry(granules);
}
