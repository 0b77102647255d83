/* Reads plans, and runs them.
 *
 * A plan is a block of int64 words, and of tables. It begins with a Head; offsets are bytes from there. Its steps call
 * kernels,
 *
 *     int64 kernel(const int64 *words, int64 first, int64 stop)
 *
 * on parts of their jobs. A step may be followed by one of several, as the results of its parts say. Nothing is read,
 * written or called before the whole plan was checked: sizes, offsets, numbers, and that every step goes forward. What a
 * kernel does with its words cannot be checked, so a plan from a file is code. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t (*Kernel)(const int64_t *words, int64_t first, int64_t stop);

enum { MAGIC_BYTES = 8, DIGEST = 64, SYMBOL = 64, TABLE_ALIGNMENT = 64, MAX_PARTS = 1 << 16, MAX_WORDS = 1 << 10, MAX_RANK = 64 };
static const char magic[MAGIC_BYTES + 1] = "UNPOOLPL";

typedef struct Head {
    char magic[MAGIC_BYTES];
    int64_t abi, size;
    char digest[DIGEST];  /* of the sources of the kernels, in hexadecimal digits */
    char library[SYMBOL]; /* the file with the kernels */
    int64_t key_at, key_count, operands_at, operand_count, steps_at, step_count, kernels_at, kernel_count;
    int64_t input_count, output_count, constant_count, label_at;
} Head;

enum Kind { INPUT, OUTPUT, CONSTANT, SCRATCH, KINDS };

typedef struct Operand { /* an array */
    int64_t kind, number, size, rank, dims_at; /* size in bytes; scratch is zero at first */
} Operand;

enum Outcome { ALWAYS, ALL_TRUE, ALL_FALSE, IN_RANGE, BY_NUMBER, OUTCOMES }; /* how results choose the next step */
enum { DONE = -1, NOT_MET = -2, OUT_OF_RANGE = -3, CHOICES = 3 };  /* what follows instead of a step */

typedef struct Step {
    int64_t kernel, words_at, word_count, jobs, parts, outcome, then[CHOICES];
    int64_t limit, indices; /* of IN_RANGE: numbers below it are indices; the operand with them */
} Step;

enum Tag { NUMBER = -1, TABLE = -2, HANDLES = 1 << 16 }; /* operand n: its address n, its handle HANDLES + n */

typedef struct Word {
    int64_t tag, value; /* offset from the address of an operand, or from the plan */
} Word;

struct Plan {
    char *blob;
    const Head *head;
    const Operand *operands;
    const Step *steps;
    Kernel *kernels;
    void **constants;
};

static void say(char *message, int64_t room, const char *text) { snprintf(message, room, "unpool: %s", text); }

/* Checks */

static int is_inside(const Head *head, int64_t at, int64_t count, int64_t each) {
    return at >= (int64_t)sizeof(Head) && at % 8 == 0 && at <= head->size && count >= 0 && count <= (head->size - at) / each;
}

static int is_text(const Head *head, int64_t at) {
    return at >= (int64_t)sizeof(Head) && at < head->size && memchr((const char *)head + at, 0, head->size - at) != NULL;
}

static int is_operand_fine(const Head *head, const Operand *operand) {
    int64_t counts[KINDS] = {head->input_count, head->output_count, head->constant_count, MAX_OPERANDS};
    const int64_t *dims;
    if (operand->kind < 0 || operand->kind >= KINDS || operand->number < 0 || operand->number >= counts[operand->kind])
        return 0;
    if (operand->size < 0 || operand->size >> 46 || operand->rank < 0 || operand->rank > MAX_RANK) return 0;
    if (!is_inside(head, operand->dims_at, operand->rank, sizeof(int64_t))) return 0;
    dims = (const int64_t *)((const char *)head + operand->dims_at);
    for (int64_t i = 0; i < operand->rank; i++)
        if (dims[i] < 0 || dims[i] >> 46) return 0;
    return 1;
}

static int is_step_fine(const Head *head, const Operand *operands, const Step *step, int64_t number) {
    const Word *words;
    if (step->kernel < 0 || step->kernel >= head->kernel_count || step->jobs < 1 || step->parts < 1 ||
        step->parts > MAX_PARTS || step->parts > step->jobs || step->jobs > INT64_MAX / step->parts ||
        step->outcome < 0 || step->outcome >= OUTCOMES)
        return 0;
    if (step->word_count > MAX_WORDS || !is_inside(head, step->words_at, step->word_count, sizeof(Word))) return 0;
    words = (const Word *)((const char *)head + step->words_at);
    if (step->outcome == IN_RANGE && (step->indices < 0 || step->indices >= head->operand_count || step->limit < 0))
        return 0;
    for (int i = 0; i < CHOICES; i++) {
        int64_t next = step->then[i];
        if (next >= 0 ? next <= number || next >= head->step_count : next < (step->outcome == IN_RANGE ? OUT_OF_RANGE : NOT_MET))
            return 0;
    }
    for (int64_t i = 0; i < step->word_count; i++) {
        int64_t tag = words[i].tag, value = words[i].value;
        if (tag == NUMBER) continue;
        if (tag == TABLE) {
            if (value < (int64_t)sizeof(Head) || value > head->size) return 0;
            continue;
        }
        if (tag >= HANDLES) tag -= HANDLES;
        if (tag < 0 || tag >= head->operand_count || value < 0 || value > operands[tag].size) return 0;
    }
    return 1;
}

static const char *problem_of(const Head *head, int64_t size) { /* of a plan; NULL if it can be used */
    static const char damaged[] = "this plan is damaged. Compile the model again.";
    const Operand *operands;
    const Step *steps;
    int64_t outputs = 0;
    if (size < (int64_t)sizeof(Head) || memcmp(head->magic, magic, MAGIC_BYTES) != 0 || head->size != size) return damaged;
    if (head->library[SYMBOL - 1] != 0) return damaged;
    if (head->abi != PLAN_ABI) return "this plan is for another release of the library. Compile the model again.";
    if (!is_inside(head, head->key_at, head->key_count, sizeof(int64_t)) ||
        !is_inside(head, head->operands_at, head->operand_count, sizeof(Operand)) ||
        !is_inside(head, head->steps_at, head->step_count, sizeof(Step)) ||
        !is_inside(head, head->kernels_at, head->kernel_count, SYMBOL) || !is_text(head, head->label_at))
        return damaged;
    operands = (const Operand *)((const char *)head + head->operands_at);
    steps = (const Step *)((const char *)head + head->steps_at);
    if (head->operand_count > MAX_OPERANDS || head->input_count < 0 || head->input_count > MAX_OPERANDS ||
        head->output_count < 0 || head->output_count > MAX_OPERANDS || head->constant_count < 0 ||
        head->constant_count > MAX_OPERANDS)
        return damaged;
    for (int64_t i = 0; i < head->kernel_count; i++)
        if (((const char *)head)[head->kernels_at + (i + 1) * SYMBOL - 1] != 0) return damaged;
    for (int64_t i = 0; i < head->operand_count; i++) {
        if (!is_operand_fine(head, &operands[i])) return damaged;
        outputs += operands[i].kind == OUTPUT;
    }
    if (outputs != head->output_count) return damaged;
    for (int64_t i = 0; i < head->output_count; i++) { /* every one, once */
        int64_t found = 0;
        for (int64_t j = 0; j < head->operand_count; j++)
            found += operands[j].kind == OUTPUT && operands[j].number == i;
        if (found != 1) return damaged;
    }
    for (int64_t i = 0; i < head->step_count; i++)
        if (!is_step_fine(head, operands, &steps[i], i)) return damaged;
    return NULL;
}

/* Reading */

static char *aligned_copy(const void *blob, int64_t size) {
    char *block = malloc(size + TABLE_ALIGNMENT + sizeof(char *)), *start;
    if (block == NULL) return NULL;
    start = block + sizeof(char *);
    start += -(uintptr_t)start % TABLE_ALIGNMENT;
    memcpy(start - sizeof(char *), &block, sizeof(char *));
    memcpy(start, blob, size);
    return start;
}

static void aligned_free(char *start) {
    char *block;
    if (start == NULL) return;
    memcpy(&block, start - sizeof(char *), sizeof(char *));
    free(block);
}

int64_t plan_size(const void *blob, int64_t room) {
    Head head;
    if (room < (int64_t)sizeof head) return 0;
    memcpy(&head, blob, sizeof head);
    return memcmp(head.magic, magic, MAGIC_BYTES) != 0 || head.size < (int64_t)sizeof head || head.size > room ? 0 : head.size;
}

Plan *plan_read(const void *blob, int64_t size, char *message, int64_t room) {
    Plan *plan = size < 0 ? NULL : calloc(1, sizeof(Plan));
    const char *problem = "out of memory.";
    if (plan != NULL && (plan->blob = aligned_copy(blob, size)) != NULL) {
        problem = problem_of((const Head *)plan->blob, size);
        if (problem == NULL) {
            plan->head = (const Head *)plan->blob;
            plan->operands = (const Operand *)(plan->blob + plan->head->operands_at);
            plan->steps = (const Step *)(plan->blob + plan->head->steps_at);
            plan->kernels = calloc(plan->head->kernel_count + 1, sizeof(Kernel));
            plan->constants = calloc(plan->head->constant_count + 1, sizeof(void *));
            if (plan->kernels == NULL || plan->constants == NULL) problem = "out of memory.";
        }
    }
    if (problem == NULL) return plan;
    say(message, room, problem);
    plan_free(plan);
    return NULL;
}

void plan_link(Plan *plan, const int64_t *kernels) {
    for (int64_t i = 0; i < plan->head->kernel_count; i++) plan->kernels[i] = (Kernel)(intptr_t)kernels[i];
}

void plan_bind(Plan *plan, void *const *constants) {
    for (int64_t i = 0; i < plan->head->constant_count; i++) plan->constants[i] = constants[i];
}

void plan_free(Plan *plan) {
    if (plan == NULL) return;
    aligned_free(plan->blob);
    free(plan->kernels);
    free(plan->constants);
    free(plan);
}

int plan_is_equal(const Plan *plan, const Plan *other) {
    return plan->head->size == other->head->size && memcmp(plan->blob, other->blob, plan->head->size) == 0;
}

const char *plan_library(const Plan *plan) { return plan->head->library; }
const char *plan_digest(const Plan *plan) { return plan->head->digest; }
int64_t plan_kernel_count(const Plan *plan) { return plan->head->kernel_count; }
const char *plan_kernel(const Plan *plan, int64_t number) { return plan->blob + plan->head->kernels_at + number * SYMBOL; }
int64_t plan_input_count(const Plan *plan) { return plan->head->input_count; }
int64_t plan_output_count(const Plan *plan) { return plan->head->output_count; }

int64_t plan_constant_count(const Plan *plan) { return plan->head->constant_count; }

const int64_t *plan_key(const Plan *plan, int64_t *count) {
    *count = plan->head->key_count;
    return (const int64_t *)(plan->blob + plan->head->key_at);
}

static const Operand *operand_of(const Plan *plan, int64_t kind, int64_t number) {
    const Operand *operand = plan->operands;
    while (operand->kind != kind || operand->number != number) operand++;
    return operand;
}

PlanOutput plan_output(const Plan *plan, int64_t number) {
    const Operand *operand = operand_of(plan, OUTPUT, number);
    return (PlanOutput){operand->size, operand->rank, (const int64_t *)(plan->blob + operand->dims_at)};
}

/* Running */

typedef struct Array { /* as a kernel finds an array by its handle: after two words, or after four, stands its address */
    int64_t words[5];
} Array;

typedef struct Run { /* of one step */
    Kernel kernel;
    const int64_t *words;
    int64_t jobs, parts, *results;
} Run;

static void run_part(void *data, size_t part) {
    Run *run = data;
    int64_t first = run->jobs * (int64_t)part / run->parts, stop = run->jobs * ((int64_t)part + 1) / run->parts;
    run->results[part] = run->kernel(run->words, first, stop);
}

enum { OUT_OF_MEMORY_CHOICE = -1, FEW_PARTS = 256 };

static int choose(const Step *step, const int64_t *results, int64_t *wrong) { /* the next step, by its number in `then` */
    int choice = 0;
    for (int64_t part = 0; part < step->parts; part++) {
        int64_t result = results[part];
        if (result == INT64_MIN) return OUT_OF_MEMORY_CHOICE;
        if (step->outcome == ALL_TRUE && result == 0) choice = 1;
        if (step->outcome == ALL_FALSE && result != 0) choice = 1;
        if (step->outcome == BY_NUMBER) choice = result >= 0 && result < CHOICES ? (int)result : CHOICES - 1;
        if (step->outcome == IN_RANGE && result == -2 && choice == 0) choice = 1;
        if (step->outcome == IN_RANGE && result >= 0 && choice != 2) choice = 2, *wrong = result;
    }
    return choice;
}

static void say_out_of_range(const Plan *plan, const Step *step, const int64_t *indices, int64_t wrong, char *message,
                             int64_t room) {
    const Operand *operand = &plan->operands[step->indices];
    const int64_t *dims = (const int64_t *)(plan->blob + operand->dims_at);
    int64_t place[MAX_RANK], rest = wrong, done;
    if (wrong >= operand->size / (int64_t)sizeof(int64_t)) {
        say(message, room, "an index is out of range.");
        return;
    }
    for (int64_t i = operand->rank - 1; i >= 0; i--) place[i] = dims[i] ? rest % dims[i] : 0, rest = dims[i] ? rest / dims[i] : 0;
    done = snprintf(message, room, "%s: indices need values from 0 to %lld, got %lld at [", plan->blob + plan->head->label_at,
                    (long long)step->limit - 1, (long long)indices[wrong]);
    for (int64_t i = 0; i < operand->rank && done < room; i++)
        done += snprintf(message + done, room - done, i ? ", %lld" : "%lld", (long long)place[i]);
    if (done < room)
        snprintf(message + done, room - done,
                 "]. Pass the indices of the pool that made X, and its input shape as output_shape.");
}

enum PlanResult plan_run(const Plan *plan, void *const *inputs, const int64_t *sizes, void *const *outputs,
                         ParallelFor parallel_for, void *context, char *message, int64_t room) {
    const Head *head = plan->head;
    char *addresses[MAX_OPERANDS];
    Array arrays[MAX_OPERANDS];
    int64_t few_results[FEW_PARTS], values[MAX_WORDS], number = head->step_count ? 0 : DONE;
    void *scratch[MAX_OPERANDS] = {NULL};
    enum PlanResult result = PLAN_DONE;
    for (int64_t i = 0; i < head->operand_count; i++) {
        const Operand *operand = &plan->operands[i];
        void *address = NULL;
        if (operand->kind == INPUT && operand->size <= sizes[operand->number]) address = inputs[operand->number];
        if (operand->kind == OUTPUT) address = outputs[operand->number];
        if (operand->kind == CONSTANT) address = plan->constants[operand->number];
        if (address == NULL && operand->kind != SCRATCH)
            result = PLAN_FAILED, say(message, room, "an input is missing or smaller than its plan says. Compile the model again.");
        addresses[i] = address;
        arrays[i].words[2] = arrays[i].words[4] = (intptr_t)address;
    }
    while (result == PLAN_DONE && number >= 0) {
        const Step *step = &plan->steps[number];
        const Word *words = (const Word *)(plan->blob + step->words_at);
        int64_t *results = step->parts <= FEW_PARTS ? few_results : malloc(step->parts * sizeof(int64_t)), wrong = 0;
        Run run = {plan->kernels[step->kernel], values, step->jobs, step->parts, results};
        int choice = OUT_OF_MEMORY_CHOICE;
        for (int64_t i = 0; i < step->word_count; i++) {
            int64_t tag = words[i].tag, value = words[i].value, operand = tag >= HANDLES ? tag - HANDLES : tag;
            if (operand >= 0 && addresses[operand] == NULL) { /* scratch, when the first step needs it */
                addresses[operand] = scratch[operand] = calloc(plan->operands[operand].size + 1, 1);
                arrays[operand].words[2] = arrays[operand].words[4] = (intptr_t)addresses[operand];
                if (addresses[operand] == NULL) result = PLAN_FAILED;
            }
            if (tag == TABLE)
                value += (intptr_t)plan->blob;
            else if (tag >= HANDLES)
                value = (intptr_t)&arrays[operand];
            else if (tag != NUMBER)
                value += (intptr_t)addresses[operand];
            values[i] = value;
        }
        if (results != NULL && result == PLAN_DONE) {
            if (step->parts == 1 || !parallel_for(context, run_part, step->parts, &run))
                for (int64_t part = 0; part < step->parts; part++) run_part(&run, part);
            choice = choose(step, results, &wrong);
        }
        if (results != few_results) free(results);
        if (choice == OUT_OF_MEMORY_CHOICE) {
            result = PLAN_FAILED, say(message, room, "out of memory.");
            break;
        }
        number = step->then[choice];
        if (number == NOT_MET) result = PLAN_NOT_MET;
        if (number == OUT_OF_RANGE) {
            result = PLAN_FAILED;
            say_out_of_range(plan, step, (const int64_t *)addresses[step->indices], wrong, message, room);
        }
    }
    for (int64_t i = 0; i < head->operand_count; i++) free(scratch[i]);
    return result;
}
