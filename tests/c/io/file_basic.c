/* Files: modes, sizes, hints, views, pointers, errors. */
/* test: ranks=1,2,3,4,8 */
#include "file_check.h"
#include <sys/stat.h>

/* The deprecated names are tested too. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static char path[200];
static MPI_Offset position, bytes;
static MPI_Status status;

static MPI_File open_file(int amode)
{
    MPI_File file = MPI_FILE_NULL;
    OK(MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file));
    return file;
}

static void test_modes(void)
{
    MPI_File file;
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    CHECK(file == MPI_FILE_NULL);
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    /* The error text of the one rank that rejects the call reaches all ranks. */
    int last = rank == ranks - 1, length;
    char text[MPI_MAX_ERROR_STRING];
    int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | (last ? MPI_MODE_WRONLY : 0), MPI_INFO_NULL, &file);
    CLASS(code, MPI_ERR_AMODE);
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "exactly one of MPI_MODE_RDONLY"));
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file),
          MPI_ERR_AMODE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, 0, MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    if (ranks > 1) {
        int mode = rank == ranks - 1 ? MPI_MODE_WRONLY : MPI_MODE_RDWR;
        CLASS(MPI_File_open(MPI_COMM_WORLD, path, mode | MPI_MODE_CREATE, MPI_INFO_NULL, &file), MPI_ERR_NOT_SAME);
    }
    CLASS(MPI_File_open(MPI_COMM_WORLD, temporary_path("missing/file"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
          MPI_ERR_NO_SUCH_FILE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, "", MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_BAD_FILE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, "/", MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_BAD_FILE);
    file = open_file(MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY);
    int amode = 0, answer = 0;
    OK(MPI_File_get_amode(file, &amode));
    SAME(amode, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY);
    MPI_Group group, world;
    OK(MPI_File_get_group(file, &group));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &answer);
    SAME(answer, MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    CLASS(MPI_File_read(file, path, 1, MPI_CHAR, &status), MPI_ERR_ACCESS);
    CLASS(MPI_File_read_all(file, path, 1, MPI_CHAR, &status), MPI_ERR_ACCESS);
    OK(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
    CLASS(MPI_File_close(&file), MPI_ERR_FILE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
          MPI_ERR_FILE_EXISTS);
    file = open_file(MPI_MODE_RDONLY);
    CLASS(MPI_File_write(file, path, 1, MPI_CHAR, &status), MPI_ERR_READ_ONLY);
    CLASS(MPI_File_write_at_all(file, 0, path, 1, MPI_CHAR, &status), MPI_ERR_READ_ONLY);
    CLASS(MPI_File_set_size(file, 5), MPI_ERR_READ_ONLY);
    OK(MPI_File_close(&file));
    if (ranks > 1) {
        /* One rank cannot open the file that the other ranks can open. */
        const char *name = rank == ranks - 1 ? temporary_path("missing/file") : path;
        CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
        CHECK(file == MPI_FILE_NULL);
        /* One rank writes while the other ranks read: no rank gets success. */
        file = open_file(MPI_MODE_RDWR);
        int code = rank == ranks - 1 ? MPI_File_write_at_all(file, 0, path, 1, MPI_CHAR, &status)
                                     : MPI_File_read_at_all(file, 0, path, 1, MPI_CHAR, &status);
        char text[MPI_MAX_ERROR_STRING];
        int length;
        SAME(class_of(code), MPI_ERR_OTHER);
        MPI_Error_string(code, text, &length);
        CHECK(strstr(text, "make the same collective calls"));
        OK(MPI_File_close(&file));
    }
    file = open_file(MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_close(&file));
    meet();
    if (rank == ranks - 1) {
        char text[MPI_MAX_ERROR_STRING], own[30];
        int length, code = MPI_File_delete(path, MPI_INFO_NULL);
        SAME(class_of(code), MPI_ERR_NO_SUCH_FILE);
        MPI_Error_string(code, text, &length);
        snprintf(own, sizeof own, "rank %d:", rank);
        CHECK(strstr(text, own));
    }
    meet();
}

static void test_sizes(void)
{
    MPI_File file = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR);
    OK(MPI_File_set_size(file, 1000));
    OK(MPI_File_get_size(file, &bytes));
    SAME(bytes, 1000);
    OK(MPI_File_preallocate(file, 500));
    OK(MPI_File_get_size(file, &bytes));
    SAME(bytes, 1000);
    OK(MPI_File_preallocate(file, 5000));
    OK(MPI_File_get_size(file, &bytes));
    SAME(bytes, 5000);
    OK(MPI_File_preallocate(file, 3000001));
    OK(MPI_File_get_size(file, &bytes));
    SAME(bytes, 3000001);
    meet();
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_get_size(file, &bytes));
    SAME(bytes, 0);
    CLASS(MPI_File_set_size(file, -1), MPI_ERR_ARG);
    if (ranks > 1)
        CLASS(MPI_File_set_size(file, rank), MPI_ERR_NOT_SAME);
    OK(MPI_File_sync(file));
    int flag = -1;
    OK(MPI_File_get_atomicity(file, &flag));
    SAME(flag, 0);
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    SAME(flag, 1);
    OK(MPI_File_close(&file));
    file = open_file(MPI_MODE_RDWR);
    char out[10] = "0123456789";
    if (rank == 0)
        OK(MPI_File_write(file, out, 10, MPI_CHAR, &status));
    OK(MPI_File_close(&file));
    file = open_file(MPI_MODE_RDWR | MPI_MODE_APPEND);
    OK(MPI_File_get_position(file, &position));
    SAME(position, 10);
    OK(MPI_File_get_position_shared(file, &position));
    SAME(position, 10);
    OK(MPI_File_close(&file));
}

static void test_hints(void)
{
    MPI_Info info;
    MPI_File file;
    char value[MPI_MAX_INFO_VAL];
    int flag;
    meet();
    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    meet();
    MPI_Info_create(&info);
    MPI_Info_set(info, "file_perm", "600");
    MPI_Info_set(info, "cb_nodes", "2");
    MPI_Info_set(info, "cb_buffer_size", "much");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    struct stat facts;
    CHECK(stat(path, &facts) == 0 && (facts.st_mode & 0777) == 0600);
    MPI_Info_set(info, "romio_cb_write", "enable");
    OK(MPI_File_set_info(file, info));
    MPI_Info_free(&info);
    OK(MPI_File_get_info(file, &info));
    MPI_Info_get(info, "cb_nodes", sizeof value - 1, value, &flag);
    CHECK(flag && strcmp(value, "2") == 0);
    MPI_Info_get(info, "romio_cb_write", sizeof value - 1, value, &flag);
    CHECK(flag && strcmp(value, "enable") == 0);
    /* An invalid value is ignored; the query returns the value in use. */
    MPI_Info_get(info, "cb_buffer_size", sizeof value - 1, value, &flag);
    CHECK(flag && atol(value) >= 4096);
    MPI_Info_get(info, "filename", sizeof value - 1, value, &flag);
    CHECK(flag && strcmp(value, path) == 0);
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
}

/* Blocks of a view are in ascending order; they may overlap if the file is not written (MPI 5.0, section 14.3). */
static void test_order(MPI_File file)
{
    static const int places[4][2] = {{3, 0}, {-3, 0}, {0, 1}, {0, 0}};
    MPI_File reads;
    char text[MPI_MAX_ERROR_STRING];
    int length, in[4];
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &reads));
    for (int i = 0; i < 4; i++) {
        MPI_Datatype tile;
        MPI_Type_create_indexed_block(2, 2, places[i], MPI_INT, &tile);
        MPI_Type_commit(&tile);
        int overlaps = i >= 2;
        for (int etype = 0; etype < 2; etype++) {
            MPI_Datatype unit = etype ? tile : MPI_INT;
            CLASS(MPI_File_set_view(file, 100, unit, tile, "native", MPI_INFO_NULL), MPI_ERR_ARG);
            CLASS(MPI_File_set_view(reads, 100, unit, tile, "native", MPI_INFO_NULL),
                  overlaps ? MPI_SUCCESS : MPI_ERR_ARG);
        }
        if (overlaps) {
            OK(MPI_File_read_at_all(reads, 0, in, 4, MPI_INT, &status));
            SAME(in[1] - in[0], 1);
            SAME(in[2], in[i == 2 ? 1 : 0]);
        }
        MPI_Error_string(MPI_File_set_view(file, 0, MPI_INT, tile, "native", MPI_INFO_NULL), text, &length);
        CHECK(rank != 0 || strstr(text, (const char *[]){"decrease", "negative", "overlap", "overlap"}[i]));
        MPI_Type_free(&tile);
    }
    OK(MPI_File_close(&reads));
}

/* A filetype consists of etypes (MPI 5.0, section 14.1.1); MPI_BYTE stands for any type. */
static void test_types(MPI_File file)
{
    MPI_Datatype mixed, bytes;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 4}, (MPI_Datatype[]){MPI_INT, MPI_FLOAT}, &mixed);
    MPI_Type_contiguous(8, MPI_BYTE, &bytes);
    MPI_Datatype floats, ints, many;
    MPI_Type_contiguous(2, MPI_FLOAT, &floats);
    MPI_Type_vector(4, 1, 3, MPI_INT32_T, &ints);
    MPI_Type_contiguous(3, mixed, &many);
    MPI_Datatype types[] = {MPI_INT, MPI_FLOAT, MPI_UNSIGNED, MPI_BYTE, mixed, floats, ints, many, bytes};
    enum { INT, FLOAT, UNSIGNED, BYTE, MIXED, FLOATS, INTS, MANY, BYTES, TYPES };
    for (int i = MIXED; i < TYPES; i++)
        MPI_Type_commit(&types[i]);
    static const int right[][2] = {{INT, INTS}, {FLOAT, FLOATS}, {MIXED, MANY}, {BYTE, MANY}, {INT, BYTES}, {FLOATS, BYTES}};
    static const int wrong[][2] = {{INT, FLOAT}, {INT, UNSIGNED}, {INT, FLOATS}, {FLOATS, INTS}, {MIXED, INTS},
                                   {FLOATS, MIXED}, {INT, MANY}, {MIXED, FLOATS}};
    for (int i = 0; i < (int)(sizeof right / sizeof *right); i++)
        OK(MPI_File_set_view(file, 0, types[right[i][0]], types[right[i][1]], "native", MPI_INFO_NULL));
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++)
        CLASS(MPI_File_set_view(file, 0, types[wrong[i][0]], types[wrong[i][1]], "native", MPI_INFO_NULL), MPI_ERR_ARG);
    for (int i = MIXED; i < TYPES; i++)
        MPI_Type_free(&types[i]);
}

static void test_view(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR);
    MPI_Datatype tile, block, got_etype, got_filetype;
    char representation[MPI_MAX_DATAREP_STRING];
    MPI_Aint extent;
    /* The view selects the ints of this rank in each row of 3 ints per rank. */
    MPI_Type_contiguous(3, MPI_INT, &block);
    MPI_Type_create_resized(block, 0, 12 * ranks, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, 100 + 12 * rank, MPI_INT, tile, "native", MPI_INFO_NULL));
    int out[30], in[40], combiner, n[3];
    for (int i = 0; i < 30; i++)
        out[i] = rank * 1000 + i;
    OK(MPI_File_write(file, out, 15, MPI_INT, &status));
    MPI_Get_count(&status, MPI_INT, n);
    SAME(n[0], 15);
    OK(MPI_File_get_position(file, &position));
    SAME(position, 15);
    OK(MPI_File_write_all(file, out + 15, 15, MPI_INT, &status));
    OK(MPI_File_get_byte_offset(file, 4, &position));
    SAME(position, 100 + 12 * rank + 12 * ranks + 4);
    OK(MPI_File_get_view(file, &position, &got_etype, &got_filetype, representation));
    SAME(position, 100 + 12 * rank);
    CHECK(got_etype == MPI_INT && strcmp(representation, "native") == 0);
    MPI_Type_get_envelope(got_filetype, n, n + 1, n + 2, &combiner);
    SAME(combiner, MPI_COMBINER_RESIZED);
    MPI_Type_free(&got_filetype);
    OK(MPI_File_get_type_extent(file, tile, &extent));
    SAME(extent, 12 * ranks);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    meet();
    memset(in, 0, sizeof in);
    OK(MPI_File_read_all(file, in, 40, MPI_INT, &status));
    MPI_Get_count(&status, MPI_INT, n);
    SAME(n[0], 30);
    CHECK(memcmp(in, out, sizeof out) == 0);
    OK(MPI_File_get_position(file, &position));
    SAME(position, 30);
    OK(MPI_File_seek(file, -30, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &position));
    SAME(position, 0);
    OK(MPI_File_seek(file, 5, MPI_SEEK_CUR));
    OK(MPI_File_read(file, in, 2, MPI_INT, &status));
    SAME(in[1], rank * 1000 + 6);
    CLASS(MPI_File_seek(file, -8, MPI_SEEK_CUR), MPI_ERR_ARG);
    CLASS(MPI_File_seek(file, 0, 7), MPI_ERR_ARG);
    CLASS(MPI_File_read_at(file, -1, in, 1, MPI_INT, &status), MPI_ERR_ARG);
    CLASS(MPI_File_read_at(file, 0, in, 3, MPI_CHAR, &status), MPI_ERR_ARG);
    CLASS(MPI_File_read_at(file, 0, in, -1, MPI_INT, &status), MPI_ERR_COUNT);
    CLASS(MPI_File_read_at(file, 0, in, 1, MPI_DATATYPE_NULL, &status), MPI_ERR_TYPE);
    CLASS(MPI_File_read_at(file, (MPI_Offset)1 << 62, in, 1, MPI_INT, &status), MPI_ERR_ARG);
    OK(MPI_File_read_at(file, 0, NULL, 0, MPI_INT, &status));
    meet();
    CLASS(MPI_File_set_view(file, -5, MPI_INT, tile, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    CLASS(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, tile, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    CLASS(MPI_File_set_view(file, 0, MPI_DOUBLE, tile, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    CLASS(MPI_File_set_view(file, 0, MPI_INT, tile, "mine", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    test_order(file);
    test_types(file);
    /* A view of 10^9 blocks. */
    MPI_Datatype many, eight;
    MPI_Type_create_resized(MPI_DOUBLE, 0, 32, &eight);
    MPI_Type_contiguous(1000000000, eight, &many);
    MPI_Type_commit(&many);
    OK(MPI_File_set_view(file, 8 * rank, MPI_DOUBLE, many, "internal", MPI_INFO_NULL));
    OK(MPI_File_get_byte_offset(file, 2000000001, &position));
    SAME(position, 8 * rank + 32 * 2000000001LL);
    MPI_Type_free(&many);
    MPI_Type_free(&eight);
    MPI_Type_free(&tile);
    MPI_Type_free(&block);
    OK(MPI_File_close(&file));
}

/* Memory with gaps into a file with gaps. */
static void test_gaps(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR);
    MPI_Datatype memory, tile;
    const int count = 50000;
    MPI_Type_vector(count, 1, 2, MPI_INT, &memory);
    MPI_Type_commit(&memory);
    MPI_Type_create_resized(MPI_INT, 0, 4 * ranks, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, 4 * rank, MPI_INT, tile, "native", MPI_INFO_NULL));
    int *out = allocate(count * 8), *in = allocate(count * 8);
    for (int i = 0; i < 2 * count; i++) {
        out[i] = i * ranks + rank;
        in[i] = -1;
    }
    OK(MPI_File_write_at_all(file, 7, out, 1, memory, &status));
    meet();
    OK(MPI_File_read_at_all(file, 7, in, 1, memory, &status));
    int elements, bad = 0;
    MPI_Get_elements(&status, memory, &elements);
    SAME(elements, count);
    for (int i = 0; i + 1 < 2 * count; i++)
        bad += in[i] != (i % 2 ? -1 : out[i]);
    SAME(bad, 0);
    meet();
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    int *all = allocate((size_t)count * ranks * 4);
    OK(MPI_File_read_at(file, 7 * ranks, all, count * ranks, MPI_INT, &status));
    for (int i = 0; i < count * ranks; i++)
        bad += all[i] != 2 * (i / ranks) * ranks + i % ranks;
    SAME(bad, 0);
    free(all);
    free(out);
    free(in);
    MPI_Type_free(&memory);
    MPI_Type_free(&tile);
    OK(MPI_File_close(&file));
}

/* "external32": big-endian, and a long has 4 bytes. */
static void test_portable(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
    struct pair {
        int number;
        long wide;
    } out[3], in[5];
    MPI_Datatype both, types[] = {MPI_INT, MPI_LONG};
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, types, &both);
    MPI_Type_commit(&both);
    for (int i = 0; i < 3; i++)
        out[i] = (struct pair){rank * 10 + i, -1 - i};
    memset(in, 77, sizeof in);
    OK(MPI_File_write_at_all(file, 6 * rank, out, 3, both, &status));
    int count = 0;
    MPI_Get_count(&status, both, &count);
    SAME(count, 3);
    OK(MPI_File_sync(file));
    meet();
    OK(MPI_File_read_at(file, 6 * rank, in, rank == ranks - 1 ? 5 : 3, both, &status));
    MPI_Get_count(&status, both, &count);
    SAME(count, 3);
    for (int i = 0; i < 3; i++)
        CHECK(in[i].number == out[i].number && in[i].wide == out[i].wide);
    SAME(in[3].number, 77 * 0x1010101);
    out[0].wide = 1L << 40;
    CLASS(MPI_File_write_at(file, 6 * ranks, out, 1, both, &status), MPI_ERR_CONVERSION);
    OK(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
    MPI_Aint extent;
    OK(MPI_File_get_type_extent(file, MPI_LONG, &extent));
    SAME(extent, 4);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    unsigned char bytes_there[8];
    OK(MPI_File_read_at(file, 24 * rank, bytes_there, 8, MPI_BYTE, &status));
    CHECK(memcmp(bytes_there, (unsigned char[]){0, 0, 0, rank * 10, 255, 255, 255, 255}, 8) == 0);
    MPI_Type_free(&both);
    OK(MPI_File_close(&file));
}

static int handled;
static void handle(MPI_File *file, int *code, ...)
{
    handled += class_of(*code) == MPI_ERR_ARG && *file != MPI_FILE_NULL;
}

static void test_handlers(void)
{
    MPI_Errhandler mine, got;
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_get_errhandler(file, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    MPI_File_create_errhandler(handle, &mine);
    OK(MPI_File_set_errhandler(file, mine));
    CLASS(MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    SAME(handled, 1);
    OK(MPI_File_call_errhandler(file, MPI_ERR_ARG));
    SAME(handled, 2);
    OK(MPI_Errhandler_free(&mine));
    char text[MPI_MAX_ERROR_STRING];
    int length;
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
    MPI_File other;
    int code = MPI_File_open(MPI_COMM_WORLD, temporary_path("missing/file"), MPI_MODE_RDONLY, MPI_INFO_NULL, &other);
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "/missing/file") && strstr(text, "rank 0") && strstr(text, "No such file"));
    CHECK(MPI_File_fromint(MPI_File_toint(file)) == file);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_basic");
    test_modes();
    test_sizes();
    test_hints();
    test_view();
    test_gaps();
    test_portable();
    test_handlers();
    meet();
    /* Another rank may be on a host that still caches the file. */
    CHECK(rank != 0 || access(path, F_OK) != 0);
    return finish();
}
