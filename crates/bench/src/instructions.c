/* instructions: number of instructions of one MPI call, counted by callgrind.
 *
 *   mpiexec -n 1 instructions DIR BYTES... : -n 1 valgrind --tool=callgrind --collect-atstart=no instructions DIR BYTES...
 *
 * If the word `multiple` or `unbiased` follows DIR, only some calls are counted, at MPI_THREAD_MULTIPLE; the names of
 * their cases end with the word.
 *
 * Rank 1 runs under valgrind and makes the calls; rank 0 answers. Collection is on inside the named call only. The two
 * ranks synchronize through a page of a file in DIR, not through MPI, so that only the named call uses the library and
 * "message already there" is certain: rank 0's send has returned before rank 1 calls MPI_Recv. Readers of the dumps
 * leave out the instructions of this program that set up the call.
 * Each case ends with a dump named after it and its bytes, which crates/bench/src/instructions.rs reads. A library
 * without windows writes no dumps of puts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum { CALLS = 1000, WARM = 200, TAG = 7, BYTES_MAX = 2048, CROWD = 10000, CROWD_TAG = 1000 };

enum job { NOTHING, RECEIVE, SEND, FLOOD, PARTITIONS, PARTITION, NO_PARTITIONS, STOP };

/* Shared by the two processes: rank 1 posts a job and its number, rank 0 answers with the number when it is done. */
struct board {
    _Atomic int asked, done;
    enum job job;
    int bytes;
};

static struct board *board;
static _Alignas(64) char buffer[BYTES_MAX], second[BYTES_MAX];
static int peer, bytes;
static MPI_Win window = MPI_WIN_NULL, unlocked = MPI_WIN_NULL;

static struct board *map_board(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s/board", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) {
        perror(path);
        exit(2);
    }
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Entry points of Fortran, as a Fortran compiler calls them: every argument by address, a choice buffer of mpi_f08 by a
 * descriptor. NULL without a Fortran library. */
typedef void fortran_send(const void *buf, int *count, int *datatype, int *dest, int *tag, int *comm, int *ierror);
typedef void fortran_recv(void *buf, int *count, int *datatype, int *source, int *tag, int *comm, int *status,
                          int *ierror);
static fortran_send *mpi_send, *mpi_send_f08;
static fortran_recv *mpi_recv, *mpi_recv_f08;

/* An array of rank 1, as gfortran and flang describe it. */
struct descriptor {
    void *base;
    size_t element_bytes;
    int version;
    signed char rank, more[3];
    ptrdiff_t lower_bound, extent, stride, further[14][3];
};

static void load_fortran(void) {
    void *library = dlopen("libmpifort_abi.so.1", RTLD_NOW);
    if (!library) return;
    mpi_send = (fortran_send *)dlsym(library, "mpi_send_");
    mpi_recv = (fortran_recv *)dlsym(library, "mpi_recv_");
    mpi_send_f08 = (fortran_send *)dlsym(library, "mpi_send_f08ts_");
    mpi_recv_f08 = (fortran_recv *)dlsym(library, "mpi_recv_f08ts_");
}

/* Posts `job` to rank 0 and, with `wait`, returns after it is done. */
static void ask(enum job job, int wait) {
    while (board->done != board->asked) sched_yield();
    board->job = job;
    board->bytes = bytes;
    board->asked++;
    while (wait && board->done != board->asked) sched_yield();
}

/* Sends CROWD messages, each with a different tag. */
static void flood(void) {
    for (int i = 0; i < CROWD; i++) MPI_Send(buffer, 1, MPI_BYTE, peer, CROWD_TAG + i, MPI_COMM_WORLD);
}

/* A partitioned message with as many partitions as a case has calls. */
#if MPI_VERSION >= 4
enum { PARTS = WARM + CALLS };
static char parts[PARTS * BYTES_MAX];
static MPI_Request in_parts;
static int part;

static void begin_parts(int sends) {
    if (sends) MPI_Psend_init(parts, PARTS, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &in_parts);
    else MPI_Precv_init(parts, PARTS, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &in_parts);
    MPI_Start(&in_parts);
    part = 0;
}

static void take_part(void) {
    for (int arrived = 0; !arrived;) MPI_Parrived(in_parts, part, &arrived);
    part++;
}

static void end_parts(void) {
    MPI_Wait(&in_parts, MPI_STATUS_IGNORE);
    MPI_Request_free(&in_parts);
}
#else
static void begin_parts(int sends) { (void)sends; }
static void take_part(void) {}
static void end_parts(void) {}
#endif

static void serve(int first) {
    for (int next = first;; next++) {
        while (board->asked != next) {
            /* Some libraries need the target's help for a put. */
            int found;
            if (window != MPI_WIN_NULL)
                MPI_Iprobe(peer, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            sched_yield();
        }
        bytes = board->bytes;
        if (board->job == RECEIVE) MPI_Recv(second, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (board->job == SEND) MPI_Send(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        if (board->job == FLOOD) flood();
        if (board->job == PARTITIONS) begin_parts(0);
        if (board->job == PARTITION) take_part();
        if (board->job == NO_PARTITIONS) end_parts();
        enum job job = board->job;
        board->done = next;
        if (job == STOP) return;
    }
}

#define COUNTED(call) do { CALLGRIND_TOGGLE_COLLECT; call; CALLGRIND_TOGGLE_COLLECT; } while (0)

/* Makes the library move arrived messages to its unexpected queue, by probing for a tag that is never sent. */
static void pull_arrivals(void) {
    int found;
    for (int i = 0; i < 3; i++) MPI_Iprobe(peer, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

/* Moves the messages of `flood` into the unexpected queue. */
static void pull_flood(void) {
    int found;
    ask(FLOOD, 0);
    while (board->done != board->asked) MPI_Iprobe(peer, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    for (int i = 0; i < CROWD; i++) MPI_Iprobe(peer, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

static MPI_Request crowd[CROWD];
static char crowd_bytes[CROWD];

static void post_crowd(void) {
    for (int i = 0; i < CROWD; i++)
        MPI_Irecv(&crowd_bytes[i], 1, MPI_BYTE, peer, CROWD_TAG + i, MPI_COMM_WORLD, &crowd[i]);
}

/* Prepares the load of a case: CROWD messages or receives of other tags, or a partitioned message. */
static void gather_crowd(const char *which) {
    if (!strcmp(which, "MPI_Pready")) {
        ask(PARTITIONS, 0);
        begin_parts(1);
    }
    if (!strcmp(which, "MPI_Recv_among_unexpected")) pull_flood();
    if (!strcmp(which, "MPI_Irecv_Wait_among_posted")) post_crowd();
}

static void disperse_crowd(const char *which) {
    if (!strcmp(which, "MPI_Pready")) {
        ask(NO_PARTITIONS, 0);
        end_parts();
        return;
    }
    if (!strcmp(which, "MPI_Recv_among_unexpected")) post_crowd();
    else if (!strcmp(which, "MPI_Irecv_Wait_among_posted")) ask(FLOOD, 0);
    else return;
    MPI_Waitall(CROWD, crowd, MPI_STATUSES_IGNORE);
}

/* Makes one call of case `which`, with its uncounted preparation and completion. */
static void make_call(const char *which) {
    static MPI_Status of_bytes;
    MPI_Request request;
    MPI_Aint lower, extent;
    int answer;
    if (!strcmp(which, "MPI_Comm_rank")) {
        COUNTED(MPI_Comm_rank(MPI_COMM_WORLD, &answer));
    } else if (!strcmp(which, "MPI_Comm_size")) {
        COUNTED(MPI_Comm_size(MPI_COMM_WORLD, &answer));
    } else if (!strcmp(which, "MPI_Type_size")) {
        COUNTED(MPI_Type_size(MPI_DOUBLE, &answer));
    } else if (!strcmp(which, "MPI_Type_get_extent")) {
        COUNTED(MPI_Type_get_extent(MPI_DOUBLE, &lower, &extent));
    } else if (!strcmp(which, "MPI_Get_count")) {
        MPI_Status_set_elements(&of_bytes, MPI_BYTE, bytes);
        COUNTED(MPI_Get_count(&of_bytes, MPI_BYTE, &answer));
    } else if (!strcmp(which, "MPI_Send")) {
        COUNTED(MPI_Send(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD));
        ask(RECEIVE, 1);
    } else if (!strcmp(which, "MPI_Recv") || !strcmp(which, "MPI_Recv_among_unexpected")) {
        ask(SEND, 1);
        MPI_Status status;
        COUNTED(MPI_Recv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
    } else if (strstr(which, "_mpi_f08") || strstr(which, "_use_mpi")) {
        int is_f08 = strstr(which, "_mpi_f08") != NULL, status[8], ierror = 0, tag = TAG;
        /* INTEGERs of the handles, the same in every library with the standard ABI. */
        int byte = 583, world = 257;
        struct descriptor array = {buffer, 1, 1, 1, {0}, 0, bytes, 1, {{0}}};
        if (!strncmp(which, "MPI_Send", 8)) {
            if (is_f08) COUNTED(mpi_send_f08(&array, &bytes, &byte, &peer, &tag, &world, NULL));
            else COUNTED(mpi_send(buffer, &bytes, &byte, &peer, &tag, &world, &ierror));
            ask(RECEIVE, 1);
        } else {
            ask(SEND, 1);
            if (is_f08) COUNTED(mpi_recv_f08(&array, &bytes, &byte, &peer, &tag, &world, status, NULL));
            else COUNTED(mpi_recv(buffer, &bytes, &byte, &peer, &tag, &world, status, &ierror));
        }
        if (ierror) MPI_Abort(MPI_COMM_WORLD, 2);
    } else if (!strcmp(which, "MPI_Sendrecv")) {
        ask(SEND, 1);
        MPI_Status status;
        COUNTED(MPI_Sendrecv(buffer, bytes, MPI_BYTE, peer, TAG, second, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                             &status));
        ask(RECEIVE, 1);
    } else if (!strcmp(which, "MPI_Isend")) {
        COUNTED(MPI_Isend(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        ask(RECEIVE, 0);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Irecv")) {
        COUNTED(MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        ask(SEND, 1);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Irecv_there")) {
        ask(SEND, 1);
        COUNTED(MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Recv_unexpected")) {
        ask(SEND, 1);
        pull_arrivals();
        MPI_Status status;
        COUNTED(MPI_Recv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
    } else if (!strcmp(which, "MPI_Irecv_unexpected")) {
        ask(SEND, 1);
        pull_arrivals();
        COUNTED(MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Wait_isend")) {
        MPI_Isend(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        ask(RECEIVE, 1);
        COUNTED(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (!strcmp(which, "MPI_Test_irecv")) {
        int flag;
        MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        ask(SEND, 1);
        pull_arrivals();
        COUNTED(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    } else if (!strcmp(which, "MPI_Test_not_yet")) {
        int flag;
        MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        COUNTED(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        ask(SEND, 1);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Irecv_Wait_posted") || !strcmp(which, "MPI_Irecv_Wait_among_posted")) {
        COUNTED(MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        ask(SEND, 1);
        MPI_Status status;
        COUNTED(MPI_Wait(&request, &status));
    } else if (!strcmp(which, "MPI_Put")) {
        COUNTED(MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Get")) {
        COUNTED(MPI_Get(second, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Fetch_and_op")) {
        int64_t one = 1, before;
        COUNTED(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, peer, 0, MPI_SUM, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Fetch_and_op_char")) {
        char one = 1, before;
        COUNTED(MPI_Fetch_and_op(&one, &before, MPI_CHAR, peer, 0, MPI_SUM, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Fetch_and_op_read")) {
        int64_t before;
        COUNTED(MPI_Fetch_and_op(NULL, &before, MPI_INT64_T, peer, 0, MPI_NO_OP, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Compare_and_swap")) {
        int64_t next = 1, expected = 0, before;
        COUNTED(MPI_Compare_and_swap(&next, &expected, &before, MPI_INT64_T, peer, 0, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Compare_and_swap_char")) {
        char next = 1, expected = 0, before;
        COUNTED(MPI_Compare_and_swap(&next, &expected, &before, MPI_CHAR, peer, 0, window));
        MPI_Win_flush(peer, window);
    } else if (!strcmp(which, "MPI_Win_flush")) {
        MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        COUNTED(MPI_Win_flush(peer, window));
    } else if (!strcmp(which, "MPI_Win_flush_local")) {
        MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        COUNTED(MPI_Win_flush_local(peer, window));
    } else if (!strcmp(which, "MPI_Win_lock_all")) {
        COUNTED(MPI_Win_lock_all(0, unlocked));
        MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, unlocked);
        MPI_Win_unlock_all(unlocked);
    } else if (!strcmp(which, "MPI_Win_unlock_all")) {
        MPI_Win_lock_all(0, unlocked);
        MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, unlocked);
        COUNTED(MPI_Win_unlock_all(unlocked));
    } else if (!strcmp(which, "MPI_Win_lock")) {
        COUNTED(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, unlocked));
        MPI_Win_unlock(peer, unlocked);
    } else if (!strcmp(which, "MPI_Win_unlock")) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, unlocked);
        COUNTED(MPI_Win_unlock(peer, unlocked));
    } else if (!strcmp(which, "MPI_Neighbor_alltoall")) {
        /* Six blocks from this process to itself: the cost of the call besides the messages. */
        static char out[6 * BYTES_MAX], into[6 * BYTES_MAX];
        static MPI_Comm grid = MPI_COMM_NULL;
        if (grid == MPI_COMM_NULL) MPI_Cart_create(MPI_COMM_SELF, 3, (int[]){1, 1, 1}, (int[]){1, 1, 1}, 0, &grid);
        COUNTED(MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, into, bytes, MPI_BYTE, grid));
#if MPI_VERSION >= 4
    } else if (!strcmp(which, "MPI_Pready")) {
        COUNTED(MPI_Pready(part++, in_parts));
        ask(PARTITION, 1);
#endif
    } else if (!strcmp(which, "MPI_Wait_irecv")) {
        MPI_Irecv(buffer, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        ask(SEND, 1);
        COUNTED(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
}

static const char *const cases[] = {
    "MPI_Comm_rank",   "MPI_Comm_size",       "MPI_Type_size",        "MPI_Type_get_extent", "MPI_Get_count",
    "MPI_Send",        "MPI_Recv",            "MPI_Sendrecv",    "MPI_Isend",            "MPI_Irecv",      "MPI_Irecv_there",
    "MPI_Send_use_mpi", "MPI_Recv_use_mpi",   "MPI_Send_mpi_f08", "MPI_Recv_mpi_f08",
    "MPI_Recv_unexpected", "MPI_Irecv_unexpected", "MPI_Wait_isend", "MPI_Wait_irecv",
    "MPI_Test_irecv",  "MPI_Test_not_yet",   "MPI_Irecv_Wait_posted",
    "MPI_Recv_among_unexpected", "MPI_Irecv_Wait_among_posted", "MPI_Neighbor_alltoall", "MPI_Pready",
    "MPI_Put",         "MPI_Get",           "MPI_Fetch_and_op",   "MPI_Fetch_and_op_char", "MPI_Fetch_and_op_read",
    "MPI_Compare_and_swap", "MPI_Compare_and_swap_char", "MPI_Win_flush", "MPI_Win_flush_local",
    /* These cases precede the first exclusive lock of the window `unlocked`. */
    "MPI_Win_lock_all", "MPI_Win_unlock_all",
    "MPI_Win_lock",    "MPI_Win_unlock",
};
enum { CASES = sizeof cases / sizeof *cases, REMOTE_CASES = 13 };

/* Returns whether the library has windows; both ranks call it. */
static int open_window(void) {
    void *base;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Win_allocate(sizeof buffer, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    if (code == MPI_SUCCESS) code = MPI_Win_lock_all(0, window);
    else window = MPI_WIN_NULL;
    if (code == MPI_SUCCESS)
        code = MPI_Win_allocate(sizeof buffer, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &unlocked);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    int mine = code == MPI_SUCCESS, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

/* Suffix of the names of calls that one thread makes at MPI_THREAD_MULTIPLE; NULL at MPI_THREAD_SINGLE. */
static const char *multiple;

static void count_case(const char *which) {
    if (!mpi_send && (strstr(which, "_mpi_f08") || strstr(which, "_use_mpi"))) return;
    gather_crowd(which);
    for (int n = 0; n < WARM; n++) make_call(which);
    CALLGRIND_ZERO_STATS;
    for (int n = 0; n < CALLS; n++) make_call(which);
    char name[64];
    snprintf(name, sizeof name, "%s%s%s %d", which, multiple ? "_" : "", multiple ? multiple : "", bytes);
    CALLGRIND_DUMP_STATS_AT(name);
    disperse_crowd(which);
}

/* Returns whether a case is counted at both thread levels. */
static int is_immediate(const char *which) {
    static const char *const both[] = {"MPI_Send",        "MPI_Recv",       "MPI_Sendrecv",   "MPI_Isend",
                                       "MPI_Irecv_there", "MPI_Wait_isend", "MPI_Test_irecv", "MPI_Comm_rank",
                                       "MPI_Pready"};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        if (!strcmp(which, both[i])) return 1;
    return 0;
}

/* Counts the cases from `first` up to but excluding `end`, with each requested number of bytes. */
static void count_cases(int first, int end, int argc, char **argv) {
    for (int size = 2; size < argc; size++) {
        bytes = atoi(argv[size]);
        if (bytes < 0 || bytes > BYTES_MAX) MPI_Abort(MPI_COMM_WORLD, 2);
        for (int i = first; i < end; i++) {
            if (!multiple || is_immediate(cases[i])) count_case(cases[i]);
        }
    }
    ask(STOP, 1);
}

int main(int argc, char **argv) {
    int rank, ranks, level = MPI_THREAD_SINGLE;
    if (argc > 2 && (!strcmp(argv[2], "multiple") || !strcmp(argv[2], "unbiased"))) {
        multiple = argv[2];
        argv[2] = argv[1];
        argc--;
        argv++;
        level = MPI_THREAD_MULTIPLE;
    }
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || argc < 3 || !(board = map_board(argv[1]))) {
        fprintf(stderr, "instructions: needs two ranks, a directory and sizes\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    peer = 1 - rank;
    load_fortran();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        serve(1);
    } else {
        count_cases(0, CASES - REMOTE_CASES, argc, argv);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!multiple && open_window()) {
        if (rank == 0) {
            serve(board->done + 1);
        } else {
            count_cases(CASES - REMOTE_CASES, CASES, argc, argv);
        }
        MPI_Win_unlock_all(window);
        MPI_Win_free(&window);
        MPI_Win_free(&unlocked);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
