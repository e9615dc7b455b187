/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for the library of messages that XSched 1.2 names (github.com/XpuOS/ipc), which could not be downloaded. It offers
 * numbered channels. Each is a message queue of System V, as in github.com/leinfinitr/ipc, which offers channels with names.
 */
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include <sys/ipc.h>
#include <sys/msg.h>

namespace ipc
{

using ChannelKey = key_t;

enum class NodeType { kSender, kReceiver };

class Buffer
{
      public:
	const void *Data() const
	{
		return bytes;
	}

      private:
	friend class Node;
	long type = 1;
	char bytes[8192]; // the largest message that Linux allows by default
};

class Channel
{
      public:
	static void Remove(ChannelKey key)
	{
		int queue = msgget(key, 0);
		if (queue >= 0)
			msgctl(queue, IPC_RMID, nullptr);
	}
};

class Node
{
      public:
	Node(ChannelKey key, NodeType type) : type_(type)
	{
		if (type_ == NodeType::kReceiver)
			Channel::Remove(key); // a process that was killed has left it
		queue_ = msgget(key, type_ == NodeType::kReceiver ? IPC_CREAT | IPC_EXCL | 0600 : 0);
	}

	~Node()
	{
		Remove();
	}

	Node(const Node &) = delete;
	Node &operator=(const Node &) = delete;

	// A message to a receiver that has ended is lost, and the sender does not notice.
	bool Send(const void *data, size_t size)
	{
		Buffer buffer;
		if (queue_ < 0 || size > sizeof(buffer.bytes))
			return false;
		memcpy(buffer.bytes, data, size);
		while (msgsnd(queue_, &buffer.type, size, 0) != 0)
			if (errno != EINTR)
				return errno == EIDRM || errno == EINVAL;
		return true;
	}

	// Returns NULL when the channel has been removed.
	std::unique_ptr<Buffer> Receive()
	{
		std::unique_ptr<Buffer> buffer(new Buffer);
		while (msgrcv(queue_, &buffer->type, sizeof(buffer->bytes), 0, 0) < 0)
			if (errno != EINTR)
				return nullptr;
		return buffer;
	}

	void Remove()
	{
		if (type_ == NodeType::kReceiver && queue_ >= 0)
			msgctl(queue_, IPC_RMID, nullptr);
	}

      private:
	NodeType type_;
	int queue_;
};

} // namespace ipc
