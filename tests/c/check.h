/* Checks that report where they fail, and test data that identifies its message. Shared by all test programs. */
#ifndef CHECK_H
#define CHECK_H
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank = -1, ranks, failures;
static MPI_Comm meeting; /* used by `meet` only, so that wildcard receives of a test never match its messages */

/* Reports a failed check. Failures after the twentieth are only counted. */
__attribute__((format(printf, 2, 3), unused)) static void fail(int line, const char *format, ...)
{
    va_list rest;
    if (__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) > 20)
        return;
    char text[400];
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    fprintf(stderr, "rank %d, line %d: %s\n", rank, line, text);
}

#define CHECK(condition)                            \
    do {                                            \
        if (!(condition))                           \
            fail(__LINE__, "%s", #condition);       \
    } while (0)

/* Checks that two integers are equal. */
#define SAME(actual, expected)                                                              \
    do {                                                                                    \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);         \
        if (actual_ != expected_)                                                           \
            fail(__LINE__, "%s is %lld instead of %lld", #actual, actual_, expected_);      \
    } while (0)

__attribute__((unused)) static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* Checks that a call returns an error of this class, or MPI_SUCCESS. */
#define CLASS(call, expected)                                                               \
    do {                                                                                    \
        int class_ = class_of(call);                                                        \
        if (class_ != (expected))                                                           \
            fail(__LINE__, "%s gives class %d instead of %s", #call, class_, #expected);    \
    } while (0)

/* Checks that a call succeeds. */
#define OK(call) CLASS(call, MPI_SUCCESS)

/* Returns whether each rank is on its own host, started as a separate program (`scripts/vm programs --hosts 2`). */
__attribute__((unused)) static int are_apart(void)
{
    return getenv("MPI_TEST_HOSTS") != NULL;
}

/* Path in the folder for temporary files, which tests/run creates for each job. The next call overwrites the result. */
__attribute__((unused)) static const char *temporary_path(const char *name)
{
    static char path[400];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/tmp", name);
    return path;
}

/* Service name that is unique to this job. Jobs of one user share a name space; tests/run gives each job a mark. */
__attribute__((unused)) static const char *service_of(const char *name)
{
    static char service[200];
    const char *mark = getenv("MPI_TEST_MARK");
    snprintf(service, sizeof service, "%s %s", name, mark ? mark : "");
    return service;
}

/* Byte `i` of message number `seed`. */
__attribute__((unused)) static inline unsigned char byte_of(unsigned seed, size_t i)
{
    return (unsigned char)((i * 2654435761u >> 13) + seed * 40503u + (i >> 16));
}

__attribute__((unused)) static void fill(void *buffer, size_t bytes, unsigned seed)
{
    unsigned char *to = buffer;
    for (size_t i = 0; i < bytes; i++)
        to[i] = byte_of(seed, i);
}

/* Checks that the buffer holds message `seed`. */
#define HOLDS(buffer, bytes, seed) holds(__LINE__, buffer, bytes, seed)
__attribute__((unused)) static void holds(int line, const void *buffer, size_t bytes, unsigned seed)
{
    const unsigned char *from = buffer;
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != byte_of(seed, i)) {
            fail(line, "byte %zu of %zu is %d instead of %d (message %u)", i, bytes, from[i], byte_of(seed, i), seed);
            return;
        }
}

/* Checks source, tag and size in the status of a message. */
#define STATUS(status, source, tag, bytes) check_status(__LINE__, &(status), source, tag, bytes)
__attribute__((unused)) static void check_status(int line, const MPI_Status *status, int source, int tag, MPI_Count bytes)
{
    MPI_Count count = -1;
    MPI_Get_count_c(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != bytes)
        fail(line, "status says %lld bytes from %d with tag %d instead of %lld from %d with %d", (long long)count,
             status->MPI_SOURCE, status->MPI_TAG, (long long)bytes, source, tag);
}

__attribute__((unused)) static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, bytes);
        exit(3);
    }
    return memory;
}

__attribute__((unused)) static void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
}

/* Ends MPI and returns the exit code of main. */
__attribute__((unused)) static int finish(void)
{
    if (meeting)
        MPI_Comm_free(&meeting);
    MPI_Finalize();
    return failures ? 1 : 0;
}

/* A barrier of point-to-point messages, so that tests of messages do not depend on collectives. */
__attribute__((unused)) static void meet(void)
{
    char out = 0, in;
    for (int step = 1; step < ranks; step *= 2)
        MPI_Sendrecv(&out, 1, MPI_CHAR, (rank + step) % ranks, 0, &in, 1, MPI_CHAR,
                     (rank + ranks - step) % ranks, 0, meeting, MPI_STATUS_IGNORE);
}
#endif
