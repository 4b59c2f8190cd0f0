/* Files: writes and reads of each rank, independent and collective, compared with system calls on the same bytes.
 * The file is in a private folder in $TMPDIR, or /tmp, and is rewritten repeatedly: it is in memory, not on a
 * device. On one host its name is removed before any data is written, so that a killed run leaves nothing. */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYSTEM, INDEPENDENT, COLLECTIVE, INDEPENDENT_ROWS, COLLECTIVE_ROWS, INDEPENDENT_2D, COLLECTIVE_2D, INDEPENDENT_3D,
       COLLECTIVE_3D, SHARED };
#define VIEWS "independent", "collective", "independent, rows", "collective, rows", "independent, 2D blocks", \
              "collective, 2D blocks", "independent, 3D blocks", "collective, 3D blocks", "shared pointer", NULL
static const char *const writes[] = {"pwrite", VIEWS};
static const char *const reads[] = {"pread", VIEWS};

static MPI_File file = MPI_FILE_NULL;
static int descriptor = -1;
/* Paths of the folder and of the file in it; empty if there is none. */
static char folder[512], path[520];

/* Dimensions of the ranks' interleaving in the file: rows (1), a plane or a cube of blocks; 0: one contiguous piece of
 * each rank. */
static int dimensions_of(const struct bench_case *c) {
    switch (c->variant_index) {
    case INDEPENDENT_ROWS: case COLLECTIVE_ROWS: return 1;
    case INDEPENDENT_2D: case COLLECTIVE_2D: return 2;
    case INDEPENDENT_3D: case COLLECTIVE_3D: return 3;
    default: return 0;
    }
}

static bool is_together(const struct bench_case *c) {
    switch (c->variant_index) {
    case COLLECTIVE: case COLLECTIVE_ROWS: case COLLECTIVE_2D: case COLLECTIVE_3D: return true;
    default: return false;
    }
}

/* Returns the largest power of two that divides `count` and whose n-th power is at most `count`. */
static int find_side(int count, int n) {
    int side = 1;
    for (int next = 2; count % next == 0; next *= 2) {
        double power = 1;
        for (int i = 0; i < n; i++) power *= next;
        if (power > count) break;
        side = next;
    }
    return side;
}

/* Sets the view: the ranks' rows of 512 bytes alternate, or their blocks of doubles form a plane or a cube. */
static int set_blocks(struct bench_case *c, int dimensions) {
    MPI_Datatype type;
    int grid[3] = {0, 0, 0}, sizes[3], own[3], first[3], rest = (int)(c->bytes / sizeof(double)), member = c->member;
    MPI_Dims_create(c->member_count, dimensions, grid);
    for (int i = dimensions - 1; i >= 0; i--) {
        own[i] = i == 0 ? rest : find_side(rest, i + 1);
        rest /= own[i];
        if (dimensions == 1) own[i] = ROW_BYTES / (int)sizeof(double);
        sizes[i] = grid[i] * own[i];
        first[i] = member % grid[i] * own[i];
        member /= grid[i];
    }
    MPI_Type_create_subarray(dimensions, sizes, own, first, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    int code = MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Type_free(&type);
    return code;
}

static const char *name_calls(const struct bench_case *c, bool writes_it) {
    switch (c->variant_index) {
    case SYSTEM: return writes_it ? "pwrite" : "pread";
    case SHARED: return writes_it ? "MPI_File_seek_shared/MPI_File_write_shared" : "MPI_File_seek_shared/MPI_File_read_shared";
    default: break;
    }
    if (is_together(c)) return writes_it ? "MPI_File_write_at_all" : "MPI_File_read_at_all";
    return writes_it ? "MPI_File_write_at" : "MPI_File_read_at";
}

static bool is_write(const struct bench_case *c) { return !strcmp(c->test->name, "file-write"); }

static MPI_Offset own_offset(const struct bench_case *c) {
    return dimensions_of(c) ? 0 : (MPI_Offset)c->member * (MPI_Offset)c->bytes;
}

/* Blocks or unblocks termination signals, which must wait while the file has a name. */
static void hold_signals(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, 0}; *s; s++) sigaddset(&set, *s);
    pthread_sigmask(how, &set, NULL);
}

/* Creates a folder with an unpredictable name that no other user can enter. */
static bool make_folder(struct bench_case *c) {
    const char *where = getenv("TMPDIR");
    if (c->member == 0) {
        int length = snprintf(folder, sizeof folder, "%s/fastpath-bench.XXXXXX", where && *where ? where : "/tmp");
        if (length >= (int)sizeof folder || !mkdtemp(folder)) folder[0] = 0;
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, c->members);
    snprintf(path, sizeof path, "%s/file", folder);
    return folder[0] != 0;
}

/* Removes the folder with the file, and with shared pointer files of an MPI. */
static void remove_folder(void) {
    DIR *list = opendir(folder);
    if (!list) return;
    for (struct dirent *entry; (entry = readdir(list));) unlinkat(dirfd(list), entry->d_name, 0);
    closedir(list);
    if (rmdir(folder) == 0) folder[0] = 0;
}

/* Returns whether all members share a host. Another host could not open the file after its name is removed. */
static bool is_one_host(struct bench_case *c) {
    MPI_Comm here;
    int size = 0;
    MPI_Comm_split_type(c->members, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &size);
    MPI_Comm_free(&here);
    return size == c->member_count;
}

/* Opens the file by MPI and by the system. */
static int open_file(struct bench_case *c) {
    MPI_Offset at;
    c->failed = "MPI_File_open";
    int code = MPI_File_open(c->members, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (code != MPI_SUCCESS) return code;
    descriptor = open(path, O_RDWR | O_CLOEXEC);
    /* Some MPIs keep the shared pointer in another file, created and opened on first use. */
    if (c->variant_index == SHARED) MPI_File_get_position_shared(file, &at);
    return code;
}

static int prepare_file(struct bench_case *c) {
    bool one_host = is_one_host(c);
    c->operation = name_calls(c, is_write(c));
    c->failed = "mkdtemp in $TMPDIR";
    if (c->member == 0) hold_signals(SIG_BLOCK);
    int code = make_folder(c) ? open_file(c) : MPI_ERR_ACCESS;
    MPI_Barrier(c->members);
    if (c->member == 0) {
        if (folder[0] && (one_host || code != MPI_SUCCESS)) remove_folder();
        hold_signals(SIG_UNBLOCK);
    }
    if (code != MPI_SUCCESS) return code;
    fill_pattern(c->send, c->bytes, (unsigned)c->member);
    c->failed = "MPI_File_set_view";
    /* A block needs at least one element. */
    code = dimensions_of(c) && c->bytes ? set_blocks(c, dimensions_of(c)) : MPI_SUCCESS;
    if (code != MPI_SUCCESS) return code;
    c->failed = "MPI_File_write_at_all";
    return MPI_File_write_at_all(file, own_offset(c), c->send, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void finish_file(struct bench_case *c) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
    MPI_File_close(&file);
    if (c->member == 0 && folder[0]) remove_folder();
}

/* Transfers all bytes, with as many calls as the system needs. */
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
    bool writes_it = is_write(c), together = is_together(c);
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
        /* Reset the pointer to the start before each call, so that the file does not grow. */
        if (c->variant_index == SHARED) MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        move_once(c);
    }
}

/* Rank whose record is in the buffer, or -1. */
static int find_record(const struct bench_case *c) {
    for (int member = 0; member < c->member_count; member++)
        if (has_pattern(c->receive, c->bytes, 50 + (unsigned)member)) return member;
    return -1;
}

/* The shared pointer gives records in unknown order, but the file has each nonempty record once. */
static bool verify_records(struct bench_case *c) {
    bool right = true;
    int found, *all = calloc((size_t)c->member_count, sizeof *all);
    if (!all) return false;
    if (!is_write(c)) MPI_File_write_at(file, own_offset(c), c->send, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(c->members);
    run_file(c, 1);
    MPI_Barrier(c->members);
    if (is_write(c)) MPI_File_read_at(file, own_offset(c), c->receive, (int)c->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    found = find_record(c);
    MPI_Allgather(&found, 1, MPI_INT, all, 1, MPI_INT, c->members);
    for (int i = 0; i < c->member_count; i++)
        for (int j = 0; j < i; j++) right = right && (all[i] != all[j] || c->bytes == 0);
    free(all);
    MPI_Barrier(c->members);
    return right && found >= 0;
}

static bool verify_file(struct bench_case *c) {
    unsigned seed = 50 + (unsigned)c->member;
    bool right;
    fill_pattern(c->send, c->bytes, seed);
    memset(c->receive, 0xee, c->bytes);
    if (c->variant_index == SHARED) return verify_records(c);
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
    {.name = "file-write", OF_ALL, .variants = writes},
    {.name = "file-read", OF_ALL, .variants = reads},
    {.name = NULL},
};
