/* Locks of something short, which spin, and sleep where the holder has lost its core. Include it before other headers. */
#define _POSIX_C_SOURCE 200112L
#include <stdint.h>

#if defined(_WIN32)
__declspec(dllimport) void __stdcall Sleep(unsigned long);
static inline void pause_thread(void) { Sleep(1); }
#else
#include <time.h>
static inline void pause_thread(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
#endif

static inline void acquire(int32_t *lock) {
    for (int polls = 1; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); polls++)
        if (polls % 4096 == 0) pause_thread();
}

static inline void unlock(int32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }
