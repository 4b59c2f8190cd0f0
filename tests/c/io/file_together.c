/* Collective accesses through aggregators, mixed with independent ones: random views, memory, hints and kinds of
 * access, compared with a model of the bytes. The argument selects the hints. Without mapping, small pieces are
 * written by single calls or by data sieving. */
/* test: ranks=1,2,3,4 args=enable;automatic;disable;sieve env=FASTPATH_DISABLE=file-mapping */
#include "../check.h"
#include <unistd.h>

enum { SPACE = 1 << 20, MOST = 1 << 16, ROUNDS = 40 };

static MPI_File file;
static MPI_Status status;
static unsigned state;
static unsigned char model[SPACE], there[SPACE], out[2 * MOST], in[2 * MOST], packed[MOST], marks[MOST];
static int places[MOST];

static unsigned draw(unsigned below)
{
    state = state * 1103515245u + 12345u;
    return (state >> 8) % below;
}

/* Parameters of the ranks' tiles in a view. All ranks draw the same ones. */
struct shape {
    int kind, a, b, c, hole;
    unsigned seed;
};

static struct shape draw_shape(void)
{
    struct shape s = {draw(4), 1 + draw(30), 1 + draw(20), 1 + draw(6), draw(3) ? (int)draw(40) : 0, draw(1 << 20)};
    return s;
}

/* Tile of rank `r`. */
static MPI_Datatype tile_of(struct shape s, int r)
{
    MPI_Datatype tile, part;
    if (s.kind == 0) {
        MPI_Type_create_indexed_block(1, s.a, (int[]){s.a * r}, MPI_BYTE, &part);
        MPI_Type_create_resized(part, 0, s.a * ranks + s.hole, &tile);
        MPI_Type_free(&part);
    } else if (s.kind == 1) {
        int sizes[2] = {s.b, s.a * ranks}, own[2] = {s.b, s.a}, first[2] = {0, s.a * r};
        MPI_Type_create_subarray(2, sizes, own, first, MPI_ORDER_C, MPI_BYTE, &tile);
    } else if (s.kind == 2) {
        int sizes[3] = {s.c, s.b * ranks, s.a}, own[3] = {s.c, s.b, s.a}, first[3] = {0, s.b * r, 0};
        MPI_Type_create_subarray(3, sizes, own, first, MPI_ORDER_C, MPI_BYTE, &tile);
    } else {
        /* Cells of uneven size, each of one rank or unused. */
        int lengths[300], displacements[300], n = 0, at = 0;
        unsigned kept = state;
        state = s.seed;
        for (int cell = 0; cell < 300; cell++) {
            int length = 1 + draw(9), drawn = draw(ranks + 1), owner = cell < ranks ? cell : drawn;
            if (owner == r) {
                lengths[n] = length;
                displacements[n++] = at;
            }
            at += length;
        }
        state = kept;
        MPI_Type_indexed(n, lengths, displacements, MPI_BYTE, &part);
        MPI_Type_create_resized(part, 0, at, &tile);
        MPI_Type_free(&part);
    }
    MPI_Type_commit(&tile);
    return tile;
}

/* Stores the offsets of a tile's bytes in `places`; returns their number, and the tile's extent. */
static int read_places(MPI_Datatype tile, int *extent)
{
    MPI_Aint low, length;
    int size, n = 0, position = 0;
    MPI_Type_get_extent(tile, &low, &length);
    MPI_Type_size(tile, &size);
    memset(marks, 0, length);
    memset(packed, 1, size);
    MPI_Unpack(packed, size, &position, marks, 1, tile, MPI_COMM_SELF);
    for (int i = 0; i < length; i++)
        if (marks[i])
            places[n++] = i;
    SAME(n, size);
    *extent = length;
    return n;
}

/* Memory of `bytes` bytes: one piece, or pieces of three bytes with gaps. */
static int is_gappy;
static MPI_Datatype threes;

static void fill_memory(unsigned char *memory, int bytes, int seed)
{
    fill(packed, bytes, seed);
    for (int i = 0; i < bytes; i++)
        memory[is_gappy ? i / 3 * 5 + i % 3 : i] = packed[i];
}

static void check_memory(int line, const unsigned char *memory, int bytes, int seed)
{
    for (int i = 0; i < bytes; i++)
        packed[i] = memory[is_gappy ? i / 3 * 5 + i % 3 : i];
    for (int i = 0; i < bytes; i++)
        if (packed[i] != byte_of(seed, i)) {
            fail(line, "byte %d of %d is %d instead of %d", i, bytes, packed[i], byte_of(seed, i));
            return;
        }
}

static void write_it(int how, int skip, int count, MPI_Datatype type)
{
    MPI_Request request;
    switch (how) {
    case 0:
        OK(MPI_File_write_at_all(file, skip, out, count, type, &status));
        break;
    case 1:
        OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
        OK(MPI_File_write_all(file, out, count, type, &status));
        break;
    case 2:
        OK(MPI_File_write_at_all_begin(file, skip, out, count, type));
        OK(MPI_File_write_at_all_end(file, out, &status));
        break;
    case 3:
        OK(MPI_File_iwrite_at_all(file, skip, out, count, type, &request));
        OK(MPI_Wait(&request, &status));
        break;
    case 4:
        OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
        OK(MPI_File_iwrite_all(file, out, count, type, &request));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Wait(&request, &status));
        break;
    default:
        OK(MPI_File_write_at(file, skip, out, count, type, &status));
    }
}

static void read_it(int how, int skip, int count, MPI_Datatype type)
{
    MPI_Request request;
    MPI_Offset position;
    switch (how) {
    case 0:
        OK(MPI_File_read_at_all(file, skip, in, count, type, &status));
        break;
    case 1:
        OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
        OK(MPI_File_read_all(file, in, count, type, &status));
        OK(MPI_File_get_position(file, &position));
        int got;
        MPI_Get_elements(&status, MPI_BYTE, &got);
        SAME(position, skip + got);
        break;
    case 2:
        OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
        OK(MPI_File_read_all_begin(file, in, count, type));
        OK(MPI_File_read_all_end(file, in, &status));
        break;
    case 3:
        OK(MPI_File_iread_at_all(file, skip, in, count, type, &request));
        OK(MPI_Wait(&request, &status));
        break;
    case 4:
        OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
        OK(MPI_File_iread_all(file, in, count, type, &request));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Wait(&request, &status));
        break;
    default:
        OK(MPI_File_read_at(file, skip, in, count, type, &status));
    }
}

static void set_hint(MPI_Info info, const char *key, int value)
{
    char text[20];
    snprintf(text, sizeof text, "%d", value);
    MPI_Info_set(info, key, text);
}

static void run_round(int round, const char *word)
{
    struct shape shape = draw_shape();
    int shift = draw(3000), skip = draw(50), wanted = 1 + draw(4000), idle = draw(4 * ranks), extent;
    int writing = draw(6), reading = draw(6), buffer = draw(5);
    is_gappy = draw(2);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", strcmp(word, "sieve") ? word : "automatic");
    MPI_Info_set(info, "romio_cb_read", strcmp(word, "sieve") ? word : "automatic");
    MPI_Info_set(info, "romio_ds_write", strcmp(word, "sieve") ? "automatic" : "enable");
    set_hint(info, "cb_buffer_size", (int[]){4096, 5000, 16384, 1 << 20, 1}[buffer]);
    set_hint(info, "cb_nodes", 1 + draw(ranks + 1));
    set_hint(info, "striping_unit", (int[]){1, 512, 4096, 1 << 20}[draw(4)]);

    MPI_Offset size, end;
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_get_size(file, &end));
    int own = 0;
    for (int r = 0; r < ranks; r++) {
        MPI_Datatype tile = tile_of(shape, r);
        int n = read_places(tile, &extent), bytes = r == idle ? 0 : (wanted + r % 3 * 9) / 3 * 3;
        for (int i = 0; i < bytes; i++) {
            int at = skip + i, place = shift + at / n * extent + places[at % n];
            if (place >= SPACE) {
                bytes = i / 3 * 3;
                break;
            }
        }
        for (int i = 0; i < bytes; i++) {
            int at = skip + i, place = shift + at / n * extent + places[at % n];
            model[place] = byte_of(round * 8 + r, i);
            end = place + 1 > end ? place + 1 : end;
        }
        if (r == rank) {
            own = bytes;
            OK(MPI_File_set_view(file, shift, MPI_BYTE, tile, "native", info));
        }
        MPI_Type_free(&tile);
    }
    MPI_Info_free(&info);
    MPI_Datatype type = is_gappy ? threes : MPI_BYTE;
    int count = is_gappy ? own / 3 : own, got = -1;
    fill_memory(out, own, round * 8 + rank);
    write_it(writing, skip, count, type);
    MPI_Get_count(&status, type, &got);
    SAME(got, count);
    meet();
    memset(in, 0, sizeof in);
    read_it(reading, skip, count, type);
    MPI_Get_count(&status, type, &got);
    SAME(got, count);
    check_memory(__LINE__, in, own, round * 8 + rank);
    meet();
    /* Reads beyond the end of file. */
    OK(MPI_File_get_size(file, &size));
    SAME(size, end);
    MPI_Datatype tile = tile_of(shape, rank);
    int n = read_places(tile, &extent), left = 0;
    while (left < MOST && shift + (skip + left) / n * (MPI_Offset)extent + places[(skip + left) % n] < end)
        left++;
    MPI_Type_free(&tile);
    if (left < MOST - 600) {
        is_gappy = 0;
        read_it(reading, skip, left + 500, MPI_BYTE);
        MPI_Get_count(&status, MPI_BYTE, &got);
        SAME(got, left);
    } else {
        read_it(reading, skip, 0, MPI_BYTE);
    }
    meet();
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, there, end, MPI_BYTE, &status));
    for (int i = 0; i < end; i++)
        if (there[i] != model[i]) {
            fail(__LINE__, "round %d, kind %d, writing %d: byte %d of the file is %d instead of %d", round, shape.kind,
                 writing, i, there[i], model[i]);
            break;
        }
    meet();
}

/* One rank passes a wrong argument: no rank writes, and all report the error. */
static void test_refused(void)
{
    MPI_Offset before, after;
    char letter = 'z';
    MPI_Request request;
    OK(MPI_File_get_size(file, &before));
    meet();
    int last = rank == ranks - 1;
    CLASS(MPI_File_write_at_all(file, last ? -1 : before + 5, &letter, 1, MPI_CHAR, &status), MPI_ERR_ARG);
    int code = MPI_File_iwrite_at_all(file, last ? -1 : before + 5, &letter, 1, MPI_CHAR, &request);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&request, &status);
    CLASS(code, MPI_ERR_ARG);
    meet();
    OK(MPI_File_get_size(file, &after));
    SAME(after, before);
}

static void test_info(void)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    const char *keys[] = {"cb_buffer_size", "cb_nodes", "romio_cb_read", "romio_cb_write", "romio_ds_read",
                          "romio_ds_write"};
    OK(MPI_File_get_info(file, &info));
    for (int i = 0; i < 6; i++) {
        int room = sizeof value, flag = 0;
        OK(MPI_Info_get_string(info, keys[i], &room, value, &flag));
        CHECK(flag);
    }
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    char path[200];
    start(&argc, &argv);
    int job = rank == 0 ? getpid() : 0;
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    const char *seed = getenv("MPI_TEST_SEED"), *folder = getenv("TMPDIR");
    state = seed ? atoi(seed) : job;
    if (rank == 0 && getenv("MPI_TEST_VERBOSE"))
        printf("seed %u\n", state);
    snprintf(path, sizeof path, "%s/file_together.%d", folder ? folder : "/tmp", job);
    MPI_Datatype three;
    MPI_Type_contiguous(3, MPI_BYTE, &three);
    MPI_Type_create_resized(three, 0, 5, &threes);
    MPI_Type_commit(&threes);
    MPI_Type_free(&three);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    for (int round = 0; round < ROUNDS && failures == 0; round++)
        run_round(round, argc > 1 ? argv[1] : "automatic");
    if (failures)
        fprintf(stderr, "rank %d: MPI_TEST_SEED=%d repeats this\n", rank, seed ? atoi(seed) : job);
    test_info();
    test_refused();
    OK(MPI_File_close(&file));
    MPI_Type_free(&threes);
    return finish();
}
