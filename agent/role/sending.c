/* agent/role/sending.c: the words for why windows were not sent. */
#include "agent/role/sending.h"

const char *sending_fault_name(enum sending_fault fault)
{
	static const char *const names[SENDING_FAULT_N] = {
		[SENDING_FAULT_CONNECT] = "connect", [SENDING_FAULT_TIMEOUT] = "timeout",
		[SENDING_FAULT_TLS] = "tls",	     [SENDING_FAULT_BUSY] = "busy",
		[SENDING_FAULT_ACCESS] = "access",   [SENDING_FAULT_REPLY] = "reply",
		[SENDING_FAULT_MEMORY] = "memory",
	};

	return names[fault];
}

const char *sending_drop_name(enum sending_drop drop)
{
	static const char *const names[SENDING_DROP_N] = {
		[SENDING_DROP_REFUSED] = "refused", [SENDING_DROP_REJECTED] = "rejected",
		[SENDING_DROP_OLD] = "old",	    [SENDING_DROP_MERGED] = "merged",
		[SENDING_DROP_LARGE] = "large",	    [SENDING_DROP_DAMAGED] = "damaged",
		[SENDING_DROP_DELETED] = "deleted",
	};

	return names[drop];
}
