/* Counts of a preloaded profiling library (tests/jobs/profiling.py) for Fortran. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Calls of one function; -1 without the library. */
void profile_count_(const char *name, int *calls, size_t length)
{
    char text[100];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    long (*count)(const char *) = (long (*)(const char *))dlsym(RTLD_DEFAULT, "profile_calls");
    *calls = count ? (int)count(text) : -1;
}

/* Calls of all functions. */
void profile_total_(int *calls)
{
    long (*count)(const char *) = (long (*)(const char *))dlsym(RTLD_DEFAULT, "profile_calls");
    const char *const *(*names)(void) = (const char *const *(*)(void))dlsym(RTLD_DEFAULT, "profile_names");
    *calls = 0;
    for (const char *const *name = names ? names() : NULL; name && *name; name++)
        *calls += (int)count(*name);
}
