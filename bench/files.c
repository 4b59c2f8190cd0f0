/* Cost of files with any MPI: bench/files runs it with several in turn.
 *
 *     files FOLDER CASE
 *
 * Rank 0 prints a line for each figure: its name and its value. A time is the median over repetitions of the slowest
 * rank's, in microseconds; written data is verified outside the timed part. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int rank, ranks;
static char path[4096];
static MPI_File file;

static void stop(const char *what) {
    fprintf(stderr, "files: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "files: rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check(call, #call)

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) stop("no memory");
    memset(memory, 1, bytes);
    return memory;
}

static void open_file(MPI_Info info) {
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
}

static void close_file(void) {
    CHECK(MPI_File_close(&file));
    if (rank == 0) unlink(path);
    MPI_Barrier(MPI_COMM_WORLD);
}

enum { MOST = 64 };
static double samples[MOST];

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *name, double value) {
    if (rank == 0) printf("%s\t%.3f\n", name, value);
}

typedef void action(void *);

/* The first repetition is not counted. */
static void measure(const char *name, int repetitions, action *body, void *argument) {
    for (int i = 0; i <= repetitions; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime(), own, slowest;
        body(argument);
        own = MPI_Wtime() - start;
        MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i > 0) samples[i - 1] = slowest;
    }
    qsort(samples, (size_t)repetitions, sizeof *samples, compare);
    tell(name, samples[repetitions / 2] * 1e6);
}

/* Contiguous, each rank its own part, compared with system calls on the same bytes. */

struct part {
    char *data;
    size_t bytes;
    MPI_Offset at;
    int descriptor, count;
};

static void write_part(void *argument) {
    struct part *p = argument;
    for (int i = 0; i < p->count; i++)
        CHECK(MPI_File_write_at(file, p->at, p->data, (int)p->bytes, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void read_part(void *argument) {
    struct part *p = argument;
    for (int i = 0; i < p->count; i++)
        CHECK(MPI_File_read_at(file, p->at, p->data, (int)p->bytes, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void write_plain(void *argument) {
    struct part *p = argument;
    for (int i = 0; i < p->count; i++)
        if (pwrite(p->descriptor, p->data, p->bytes, p->at) != (ssize_t)p->bytes) stop("pwrite");
}

static void read_plain(void *argument) {
    struct part *p = argument;
    for (int i = 0; i < p->count; i++)
        if (pread(p->descriptor, p->data, p->bytes, p->at) != (ssize_t)p->bytes) stop("pread");
}

static void run_contiguous(void) {
    const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 64 << 20};
    char name[64];
    open_file(MPI_INFO_NULL);
    struct part p = {.data = take(64 << 20), .descriptor = open(path, O_RDWR | O_CLOEXEC)};
    if (p.descriptor < 0) stop(strerror(errno));
    for (int i = 0; i < 4; i++) {
        p.bytes = sizes[i];
        p.at = (MPI_Offset)rank * (MPI_Offset)p.bytes;
        p.count = p.bytes < (1 << 20) ? 64 : p.bytes < (16 << 20) ? 8 : 1;
        const struct { const char *name; action *body; } ways[] = {
            {"write", write_part}, {"pwrite", write_plain}, {"read", read_part}, {"pread", read_plain}};
        for (int way = 0; way < 4; way++) {
            snprintf(name, sizeof name, "%s %zu KiB", ways[way].name, p.bytes >> 10);
            measure(name, 15, ways[way].body, &p);
        }
    }
    close(p.descriptor);
    free(p.data);
    close_file();
}

/* Views: all ranks collectively, or this one alone. */

static double *cells;
static int cell_count, is_together;

static void write_view(void *argument) {
    (void)argument;
    if (is_together) CHECK(MPI_File_write_at_all(file, 0, cells, cell_count, MPI_DOUBLE, MPI_STATUS_IGNORE));
    else CHECK(MPI_File_write_at(file, 0, cells, cell_count, MPI_DOUBLE, MPI_STATUS_IGNORE));
}

static void read_view(void *argument) {
    (void)argument;
    if (is_together) CHECK(MPI_File_read_at_all(file, 0, cells, cell_count, MPI_DOUBLE, MPI_STATUS_IGNORE));
    else CHECK(MPI_File_read_at(file, 0, cells, cell_count, MPI_DOUBLE, MPI_STATUS_IGNORE));
}

static double cell_of(int r, int i) { return r * 1e8 + i; }

static void fill(void) {
    for (int i = 0; i < cell_count; i++) cells[i] = cell_of(rank, i);
}

static void expect(void) {
    for (int i = 0; i < cell_count; i++)
        if (cells[i] != cell_of(rank, i)) stop("wrong bytes were read");
}

static void run_views(MPI_Datatype type, MPI_Offset start, int repetitions) {
    MPI_Type_commit(&type);
    open_file(MPI_INFO_NULL);
    CHECK(MPI_File_set_view(file, start, MPI_DOUBLE, type, "native", MPI_INFO_NULL));
    cells = take((size_t)cell_count * sizeof *cells);
    fill();
    measure("write", repetitions, write_view, NULL);
    memset(cells, 0, (size_t)cell_count * sizeof *cells);
    measure("read", repetitions, read_view, NULL);
    expect();
    free(cells);
    MPI_Type_free(&type);
    close_file();
}

static void run_columns(void) {
    MPI_Datatype type;
    int own = 4096 / ranks;
    MPI_Type_vector(4096, own, 4096, MPI_DOUBLE, &type);
    cell_count = 4096 * own;
    is_together = 1;
    run_views(type, (MPI_Offset)rank * own * (MPI_Offset)sizeof(double), 5);
}

/* One double in four of each rank's part of the file. */
static void run_strided(void) {
    MPI_Datatype one, type;
    cell_count = 1 << 17;
    MPI_Type_create_resized(MPI_DOUBLE, 0, 32, &one);
    MPI_Type_contiguous(cell_count, one, &type);
    is_together = 0;
    run_views(type, (MPI_Offset)rank * cell_count * 32, 5);
    MPI_Type_free(&one);
}

/* 10,000 records of 100 B of all ranks by the shared pointer. */

enum { RECORDS = 10000, RECORD = 100 };

static void write_records(void *argument) {
    char *data = argument;
    int own = RECORDS / ranks;
    for (int i = 0; i < own; i++) {
        memset(data, 'a' + rank, RECORD);
        memcpy(data, &(int){rank * own + i}, sizeof(int));
        CHECK(MPI_File_write_shared(file, data, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    }
}

/* Setting a view moves the pointers to 0. A seek is not used, because that of Intel MPI's library of the standard ABI
 * ignores the offset. */
static void write_records_again(void *argument) {
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    write_records(argument);
}

static void look_at_records(void) {
    char *seen = calloc(1, RECORDS), record[RECORD];
    FILE *written = fopen(path, "rb");
    long count = 0;
    for (int number; fread(record, RECORD, 1, written) == 1; count++) {
        memcpy(&number, record, sizeof number);
        if (number < 0 || number >= RECORDS || seen[number]++) stop("records overlap");
        for (int i = sizeof number; i < RECORD; i++)
            if (record[i] != 'a' + number / (RECORDS / ranks)) stop("a record is damaged");
    }
    if (count != RECORDS / ranks * ranks) stop("records are missing");
    fclose(written);
    free(seen);
}

static void run_shared(void) {
    char data[RECORD];
    open_file(MPI_INFO_NULL);
    measure("records", 5, write_records_again, data);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) look_at_records();
    close_file();
}

static void open_and_close(void *argument) {
    (void)argument;
    open_file(MPI_INFO_NULL);
    CHECK(MPI_File_close(&file));
}

static void run_open(void) {
    measure("open and close", 40, open_and_close, NULL);
    if (rank == 0) unlink(path);
}

/* Memory of this process, in bytes, current or peak, from a line of /proc/self/status. */
static double memory(const char *line) {
    FILE *status = fopen("/proc/self/status", "r");
    char text[256];
    double found = 0;
    while (status && fgets(text, sizeof text, status))
        if (!strncmp(text, line, strlen(line))) found = atof(text + strlen(line)) * 1024;
    if (status) fclose(status);
    return found;
}

/* A view of 10^9 blocks; the type exists before the timed part. */
static void run_view(void) {
    MPI_Datatype one, type;
    MPI_Type_create_resized(MPI_DOUBLE, 0, 32, &one);
    MPI_Type_contiguous(1000000000, one, &type);
    MPI_Type_commit(&type);
    open_file(MPI_INFO_NULL);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    double before = memory("RssAnon:"), start = MPI_Wtime();
    CHECK(MPI_File_set_view(file, 0, MPI_DOUBLE, type, "native", MPI_INFO_NULL));
    double took = MPI_Wtime() - start;
    tell("view, us", took * 1e6);
    tell("view, KiB", (memory("RssAnon:") - before) / 1024);
    MPI_Type_free(&type);
    MPI_Type_free(&one);
    close_file();
}

/* 4 GiB written collectively, in interleaved pieces of 1 MiB: peak memory of the process beyond its data. */
static void run_memory(void) {
    const int piece = 1 << 20, pieces = 4096 / ranks;
    size_t bytes = (size_t)piece * (size_t)pieces;
    MPI_Datatype block, type, element;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "cb_buffer_size", "4194304");
    MPI_Type_contiguous(piece, MPI_BYTE, &element);
    MPI_Type_commit(&element);
    MPI_Type_create_hindexed_block(1, 1, &(MPI_Aint){(MPI_Aint)rank * piece}, element, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)piece * ranks, &type);
    MPI_Type_commit(&type);
    open_file(info);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", info));
    /* The data is one piece of 16 MiB of memory, mapped repeatedly. */
    size_t once = 16 << 20;
    int memory_file = memfd_create("data", MFD_CLOEXEC);
    if (memory_file < 0 || ftruncate(memory_file, (off_t)once)) stop("memfd_create");
    char *data = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; at < bytes; at += once)
        if (mmap(data + at, once, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, memory_file, 0) == MAP_FAILED)
            stop("mmap");
    memset(data, rank + 1, once);
    double before = memory("VmRSS:"), start = MPI_Wtime();
    CHECK(MPI_File_write_all(file, data, pieces, element, MPI_STATUS_IGNORE));
    double took = MPI_Wtime() - start, more = memory("VmHWM:") - before, most;
    MPI_Reduce(&more, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    tell("memory, KiB", most / 1024);
    tell("write", took * 1e6);
    char byte = 0;
    for (int i = 0; rank == 0 && i < 4096; i += 511) {
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (pread(descriptor, &byte, 1, (off_t)i * piece + 77) != 1 || byte != i % ranks + 1) stop("wrong bytes were written");
        close(descriptor);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    close_file();
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"contiguous", run_contiguous}, {"columns", run_columns}, {"strided", run_strided}, {"shared", run_shared},
        {"open", run_open}, {"view", run_view}, {"memory", run_memory}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3) stop("files FOLDER CASE");
    long job = getpid();
    MPI_Bcast(&job, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/files.%ld", argv[1], job);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[2], all[i].name)) all[i].run();
    MPI_Finalize();
    return 0;
}
