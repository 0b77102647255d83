#include "settings.h"
#include "unpool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *variable; /* of the environment, for hosts whose sessions have no entries */
    const char *choices;         /* NULL: a number above 0 */
} entries[SETTINGS] = {
    {UNPOOL_EXACT, "UNPOOL_EXACT", "0, 1"},
    {UNPOOL_COMPAT, "UNPOOL_COMPAT", "spec, ort"},
    {UNPOOL_INDEX_SPACE, "UNPOOL_INDEX_SPACE", "auto, output, inferred"},
    {UNPOOL_OPSET, "UNPOOL_OPSET", NULL},
    {UNPOOL_TRUST_PLANS, "UNPOOL_TRUST_PLANS", "0, 1"},
    {UNPOOL_DOMAINS, "UNPOOL_DOMAINS", "all, unpool"},
};

static int is_choice(const char *choices, const char *value) {
    size_t length = strlen(value);
    if (choices == NULL) return value[0] > '0' && strspn(value, "0123456789") == length;
    for (const char *at = strstr(choices, value); at != NULL; at = strstr(at + 1, value))
        if ((at == choices || at[-1] == ' ') && (at[length] == 0 || at[length] == ',')) return 1;
    return 0;
}

OrtStatus *settings_read(const void *options, Settings *settings) {
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < SETTINGS; i++) {
        char message[128], *value = settings->values[i];
        const char *variable = getenv(entries[i].variable), *choices = entries[i].choices;
        size_t size = SETTING;
        int is_set = 0, is_long = 0;
        OrtStatus *status = HasSessionConfigEntry(options, entries[i].name, &is_set);
        if (status != NULL) return status;
        if (is_set)
            is_long = release(GetSessionConfigEntry(options, entries[i].name, value, &size));
        else if (variable != NULL)
            is_long = snprintf(value, SETTING, "%s", variable) >= SETTING;
        if (!is_long && (value[0] == 0 || is_choice(choices, value))) continue;
        snprintf(message, sizeof message, "unpool: the %s %s is %s%s.", is_set ? "entry" : "variable",
                 is_set ? entries[i].name : entries[i].variable, choices ? "one of " : "the number of an opset",
                 choices ? choices : "");
        return fail(INVALID_ARGUMENT, message);
    }
    return NULL;
}

OrtStatus *settings_check(const Settings *settings, const void *info) {
    char message[256];
    void *pairs = NULL;
    OrtStatus *status = NULL;
    if (api_number < TELLS_ENTRIES || release(KernelInfo_GetConfigEntries(info, &pairs)) || pairs == NULL) return NULL;
    for (int i = 0; status == NULL && i < SETTINGS; i++) {
        const char *value = GetKeyValue(pairs, entries[i].name);
        if (value == NULL || strcmp(value, settings->values[i]) == 0) continue;
        snprintf(message, sizeof message,
                 "unpool: the entry %s was set to %.32s after the library was registered. Set it before.",
                 entries[i].name, value);
        status = fail(INVALID_ARGUMENT, message);
    }
    ReleaseKeyValuePairs(pairs);
    return status;
}
