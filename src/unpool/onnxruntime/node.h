/* A node and a run of it, as planners read them. */
#pragma once
#include "operators.h"

enum { EXACT, COMPAT, INDEX_SPACE, OPSET, TRUST_PLANS, DOMAIN_NAMES, SETTINGS, SETTING = 16 };
enum { MESSAGE = 4096 };

typedef struct Settings {
    char values[SETTINGS][SETTING]; /* "" where nothing is set */
} Settings;

typedef struct Value { /* of an attribute */
    const char *name;
    int64_t kind, count; /* count -1: the attribute is not set; -2: it has another type */
    void *values;        /* int64, float, or text */
} Value;

typedef struct Tensor {
    void *data; /* NULL: there is none */
    int64_t type, rank;
    int64_t dims[MAX_RANK];
} Tensor;

typedef struct Node { /* a node when its kernel is created */
    int64_t id, domain, outputs, attributes;
    const char *operator, *name;
    const char *settings[SETTINGS];
    Value values[MAX_ATTRIBUTES];
    Tensor constants[MAX_INPUTS]; /* inputs that are constant; they live as long as the kernel */
} Node;

typedef struct Call { /* one run of a node */
    int64_t id, inputs;
    Tensor *tensors;
    void *context;
    char *message; /* room for MESSAGE bytes, where a failure says what happened */
} Call;
