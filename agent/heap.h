/*
 * agent/heap.h: memory for a program that reads, works and ends.
 */
#ifndef AGENT_HEAP_H
#define AGENT_HEAP_H

/*
 * From now on the heap grows by large steps and in the kernel's large pages where it has them: the
 * sections and symbols of large programs are tens of megabytes, and of those each page of 4 KiB costs
 * more to be given than to be filled.  Not for who stays: a page that is touched counts whole.  It
 * only saves time: without large pages, all is as before.
 */
void heap_in_large_pages(void);

#endif
