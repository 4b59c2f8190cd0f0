/* Files: what each rank writes and reads, alone and together, beside the system's calls on the same bytes.
 *
 * The file lies in $TMPDIR, or /tmp, and is written again and again: it is in memory, not on a device. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYSTEM, INDEPENDENT, COLLECTIVE, INDEPENDENT_ROWS, COLLECTIVE_ROWS, SHARED };
static const char *const writes[] = {"pwrite", "independent", "collective", "independent, rows", "collective, rows",
                                     "shared pointer", NULL};
static const char *const reads[] = {"pread", "independent", "collective", "independent, rows", "collective, rows",
                                    "shared pointer", NULL};

static MPI_File file = MPI_FILE_NULL;
static int descriptor = -1;
static char path[512];

/* The ranks' rows of 512 bytes follow each other in turn. */
static int set_rows(struct bench_case *c) {
    MPI_Datatype row;
    int sizes = c->member_count * ROW_BYTES, own = ROW_BYTES, first = c->member * ROW_BYTES;
    MPI_Type_create_subarray(1, &sizes, &own, &first, MPI_ORDER_C, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    int code = MPI_File_set_view(file, 0, MPI_BYTE, row, "native", MPI_INFO_NULL);
    MPI_Type_free(&row);
    return code;
}

static const char *const names[][2] = {
    {"pread", "pwrite"},
    {"MPI_File_read_at", "MPI_File_write_at"},
    {"MPI_File_read_at_all", "MPI_File_write_at_all"},
    {"MPI_File_read_at", "MPI_File_write_at"},
    {"MPI_File_read_at_all", "MPI_File_write_at_all"},
    {"MPI_File_seek_shared/MPI_File_read_shared", "MPI_File_seek_shared/MPI_File_write_shared"},
};

static bool is_write(const struct bench_case *c) { return !strcmp(c->test->name, "file-write"); }

static bool has_rows(const struct bench_case *c) {
    return c->variant_index == INDEPENDENT_ROWS || c->variant_index == COLLECTIVE_ROWS;
}

static MPI_Offset own_offset(const struct bench_case *c) {
    return has_rows(c) ? 0 : (MPI_Offset)c->member * (MPI_Offset)c->bytes;
}

static int prepare_file(struct bench_case *c) {
    const char *folder = getenv("TMPDIR");
    long job = (long)getpid();
    c->operation = names[c->variant_index][is_write(c)];
    MPI_Bcast(&job, 1, MPI_LONG, 0, c->members);
    snprintf(path, sizeof path, "%s/fastpath-bench.%ld", folder && *folder ? folder : "/tmp", job);
    c->failed = "MPI_File_open";
    int code = MPI_File_open(c->members, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                             MPI_INFO_NULL, &file);
    if (code != MPI_SUCCESS) return code;
    fill_pattern(c->send, c->bytes, (unsigned)c->member);
    c->failed = "MPI_File_set_view";
    code = has_rows(c) ? set_rows(c) : MPI_SUCCESS;
    if (code != MPI_SUCCESS) return code;
    c->failed = "MPI_File_write_at_all";
    code = MPI_File_write_at_all(file, own_offset(c), c->send, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    descriptor = open(path, O_RDWR | O_CLOEXEC);
    return code;
}

static void finish_file(struct bench_case *c) {
    (void)c;
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
    MPI_File_close(&file);
}

/* All of it, by as many calls as the system takes. */
static void move_by_system(struct bench_case *c) {
    size_t done = 0;
    while (done < c->bytes) {
        off_t at = (off_t)own_offset(c) + (off_t)done;
        ssize_t n = is_write(c) ? pwrite(descriptor, c->send + done, c->bytes - done, at)
                                : pread(descriptor, c->receive + done, c->bytes - done, at);
        if (n <= 0 && errno != EINTR) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            any_wrong = true;
            return;
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

static void move_once(struct bench_case *c) {
    int bytes = (int)c->bytes, code = MPI_SUCCESS;
    bool writes_it = is_write(c), together = c->variant_index == COLLECTIVE || c->variant_index == COLLECTIVE_ROWS;
    MPI_Offset at = own_offset(c);
    if (c->variant_index == SYSTEM) move_by_system(c);
    else if (c->variant_index == SHARED && writes_it)
        code = MPI_File_write_shared(file, c->send, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else if (c->variant_index == SHARED)
        code = MPI_File_read_shared(file, c->receive, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else if (together && writes_it)
        code = MPI_File_write_at_all(file, at, c->send, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else if (together) code = MPI_File_read_at_all(file, at, c->receive, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else if (writes_it) code = MPI_File_write_at(file, at, c->send, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else code = MPI_File_read_at(file, at, c->receive, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "%s\n", describe_error(c->operation, code));
    any_wrong = true;
}

static void run_file(struct bench_case *c, long n) {
    for (long i = 0; i < n; i++) {
        /* The file does not grow: the pointer is at its start again for each call of all ranks. */
        if (c->variant_index == SHARED) MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        move_once(c);
    }
}

static bool verify_file(struct bench_case *c) {
    unsigned seed = 50 + (unsigned)c->member;
    bool right;
    fill_pattern(c->send, c->bytes, seed);
    memset(c->receive, 0xee, c->bytes);
    if (c->variant_index == SHARED) return true; /* the order of the ranks is not known */
    if (is_write(c)) run_file(c, 1);
    else MPI_File_write_at(file, own_offset(c), c->send, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(c->members);
    if (is_write(c)) MPI_File_read_at(file, own_offset(c), c->receive, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else run_file(c, 1);
    right = has_pattern(c->receive, c->bytes, seed);
    MPI_Barrier(c->members);
    return right;
}

#define SIZES "64K,1M,16M"
#define OF_ALL .who = EVERYONE, .of = "call", .operation = "", .sizes = SIZES, .multiple = ROW_BYTES, \
               .prepare = prepare_file, .run = run_file, .verify = verify_file, .finish = finish_file

const struct test file_tests[] = {
    {.name = "file-write", .text = "writing a file in $TMPDIR: by the system, alone, together, rows of all ranks in turn, by the shared pointer; bytes of each rank",
     OF_ALL, .variants = writes},
    {.name = "file-read", .text = "reading a file in $TMPDIR: by the system, alone, together, rows of all ranks in turn, by the shared pointer; bytes of each rank",
     OF_ALL, .variants = reads},
    {.name = NULL},
};
