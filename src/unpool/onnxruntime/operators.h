/* The operators: their names, inputs, outputs, types and attributes, and the shapes of outputs. */
#include "ort.h"

enum Domain { STANDARD, CHANNELS_LAST, OWN, DOMAINS };
enum Characteristic { REQUIRED, OPTIONAL, VARIADIC };
enum AttributeKind { INT_VALUE, INT_LIST, FLOAT_VALUE, FLOAT_LIST, TEXT_VALUE };
enum Sizes { POOLED, UNPOOLED, GROWN, CONVOLVED, OF_X, STATED }; /* of outputs; stated: by the model */
enum { MAX_INPUTS = 8, MAX_OUTPUTS = 2, MAX_ATTRIBUTES = 24, MAX_RANK = 64 };

typedef struct Attribute {
    const char *name;
    int32_t kind;
} Attribute;

/* Inputs and outputs are a letter each: T a tensor of the type of the operator, I one of int64, S one of int64 whose
 * values are sizes of the output; small letters are optional ones; * is any number of tensors of any type. */
typedef struct Operator {
    const char *name;
    int32_t domains; /* a bit for each */
    int32_t types;   /* how many of `operator_types` it has */
    const char *inputs, *outputs;
    int32_t sizes;
    const Attribute *attributes; /* the last has no name */
} Operator;

enum { OPERATORS = 10, TYPES = 6 };

extern const Operator operators[OPERATORS];
extern const int operator_types[TYPES];
extern const char *const domain_names[DOMAINS];

/* The number of inputs that a compiled node has before its constants; its plans say how many constants follow. */
int64_t data_count(const Operator *operator);

int type_of(char letter, int type); /* of an input or output, of an operator of this type */
int characteristic_of(char letter);

/* Set the types of outputs, and the sizes that follow from attributes and inputs; `compat` is the session's. */
void infer_outputs(const Operator *operator, int domain, const char *compat, void *context);
