#include "lock.h"
#include "export.h"
#include "planner.h"

#include <stdlib.h>

static const Planner *planner;
static int64_t calls;    /* of the planner that are running */
static int64_t last_id;  /* of an Owned */
static Owned *destroyed; /* nothing of the planner runs when a session ends: it asks for them later */

const Planner *enter(void) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&planner, __ATOMIC_SEQ_CST);
}

void leave(void) { __atomic_sub_fetch(&calls, 1, __ATOMIC_SEQ_CST); }

int is_alone(void) {
    int is_none = enter() == NULL;
    return leave(), is_none;
}

/* Set the planner of this process; with NULL no function of the earlier one runs any more when this returns. */
EXPORT void unpool_set_planner(const Planner *functions) {
    __atomic_store_n(&planner, functions, __ATOMIC_SEQ_CST);
    while (functions == NULL && __atomic_load_n(&calls, __ATOMIC_SEQ_CST) != 0) pause_thread();
}

int64_t new_id(void) { return __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED); }

void let_go(Owned *owned, int is_known) {
    if (!is_known) return free(owned);
    owned->next = __atomic_load_n(&destroyed, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&destroyed, &owned->next, owned, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}

/* Call a function of the planner with the id of everything that was destroyed since the last time. */
EXPORT void unpool_forget(void (*forget)(int64_t)) {
    Owned *owned = __atomic_exchange_n(&destroyed, NULL, __ATOMIC_ACQUIRE);
    while (owned != NULL) {
        Owned *next = owned->next;
        forget(owned->id);
        free(owned);
        owned = next;
    }
}
