/* Accesses of which one rank's calls fail, as tests/jobs/faults.c makes them: every form of access tells the same error
 * on all ranks that take part, and each byte of the file is what it was or what was to be written there.
 *
 * Words: write | read | rest, the number of the system's error, the rank, the file, and how the ranks' bytes lie:
 * `apart` in blocks, in `rows` in turn by way of others, in small `pieces` that are stored, or `sieved`: read and written
 * back. */
/* test: only=build */
#include "check.h"
#include <errno.h>

enum { BLOCK = 1 << 16, ROUNDS = 4, OLD = 99 };
enum { AT, INDIVIDUAL, SHARED, REQUEST_AT, REQUEST, AT_ALL, ALL, ORDERED, REQUEST_AT_ALL, REQUEST_ALL, SPLIT_AT, SPLIT,
       SPLIT_ORDERED, FORMS };

static MPI_File file;
static MPI_Status status;
static unsigned char out[ROUNDS][BLOCK], in[BLOCK], *all;
static const char *path, *layout;
static int error, faulty, row;

/* Bytes at even distances, or the whole block in one piece. */
static int is_view(int form)
{
    return row && form != SHARED && form != ORDERED && form != SPLIT_ORDERED;
}

/* Where block `round` begins in the rank's view. */
static MPI_Offset offset_of(int form, int round)
{
    return (MPI_Offset)(is_view(form) ? round : round * ranks + rank) * BLOCK;
}

/* Where in the file a byte of it lies. */
static MPI_Offset place_of(int form, int round, int i)
{
    MPI_Offset at = offset_of(form, round) + i;
    return is_view(form) ? (at / row * ranks + rank) * row + at % row : at;
}

static void open_file(int form)
{
    MPI_Info info;
    MPI_Info_create(&info);
    int is_together = strcmp(layout, "rows") == 0;
    MPI_Info_set(info, "romio_cb_write", is_together ? "enable" : "disable");
    MPI_Info_set(info, "romio_cb_read", is_together ? "enable" : "disable");
    MPI_Info_set(info, "cb_buffer_size", "20000");
    MPI_Info_set(info, "cb_nodes", "2");
    if (strcmp(layout, "sieved") == 0)
        MPI_Info_set(info, "romio_ds_write", "enable");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, info, &file));
    if (is_view(form)) {
        MPI_Datatype tile;
        MPI_Type_create_subarray(1, (int[]){ranks * row}, (int[]){row}, (int[]){rank * row}, MPI_ORDER_C, MPI_BYTE,
                                 &tile);
        MPI_Type_commit(&tile);
        OK(MPI_File_set_view(file, 0, MPI_BYTE, tile, "native", info));
        MPI_Type_free(&tile);
    }
    MPI_Info_free(&info);
}

/* One access of block `round`. A split one fails where it begins. */
static int access_block(int form, int writes, int round)
{
    void *block = writes ? out[round] : in;
    MPI_Offset at = offset_of(form, round);
    MPI_Request request = MPI_REQUEST_NULL;
    int code;
    OK(MPI_File_seek(file, at, MPI_SEEK_SET));
#define WAYS(do, ido)                                                                                  \
    form == AT ? MPI_File_##do##_at(file, at, block, BLOCK, MPI_BYTE, &status)                         \
    : form == INDIVIDUAL ? MPI_File_##do(file, block, BLOCK, MPI_BYTE, &status)                        \
    : form == SHARED ? MPI_File_##do##_shared(file, block, BLOCK, MPI_BYTE, &status)                   \
    : form == REQUEST_AT ? MPI_File_##ido##_at(file, at, block, BLOCK, MPI_BYTE, &request)             \
    : form == REQUEST ? MPI_File_##ido(file, block, BLOCK, MPI_BYTE, &request)                         \
    : form == AT_ALL ? MPI_File_##do##_at_all(file, at, block, BLOCK, MPI_BYTE, &status)               \
    : form == ALL ? MPI_File_##do##_all(file, block, BLOCK, MPI_BYTE, &status)                         \
    : form == ORDERED ? MPI_File_##do##_ordered(file, block, BLOCK, MPI_BYTE, &status)                 \
    : form == REQUEST_AT_ALL ? MPI_File_##ido##_at_all(file, at, block, BLOCK, MPI_BYTE, &request)     \
    : form == REQUEST_ALL ? MPI_File_##ido##_all(file, block, BLOCK, MPI_BYTE, &request)               \
    : form == SPLIT_AT ? MPI_File_##do##_at_all_begin(file, at, block, BLOCK, MPI_BYTE)                \
    : form == SPLIT ? MPI_File_##do##_all_begin(file, block, BLOCK, MPI_BYTE)                          \
                    : MPI_File_##do##_ordered_begin(file, block, BLOCK, MPI_BYTE)
#define END(do)                                                                  \
    form == SPLIT_AT ? MPI_File_##do##_at_all_end(file, block, &status)          \
    : form == SPLIT ? MPI_File_##do##_all_end(file, block, &status)              \
    : form == SPLIT_ORDERED ? MPI_File_##do##_ordered_end(file, block, &status)  \
                            : MPI_SUCCESS
    code = writes ? WAYS(write, iwrite) : WAYS(read, iread);
    if (code == MPI_SUCCESS && request != MPI_REQUEST_NULL)
        code = MPI_Wait(&request, &status);
    if (code == MPI_SUCCESS)
        code = writes ? END(write) : END(read);
    return code;
}

/* The error has its class, and its words name the file, the rank, the bytes and the system's reason. */
static void check_error(int code, int is_same, const char *bytes)
{
    char text[MPI_MAX_ERROR_STRING], first[MPI_MAX_ERROR_STRING], who[20];
    int length;
    CLASS(code, error == EDQUOT ? MPI_ERR_QUOTA : MPI_ERR_IO);
    MPI_Error_string(code, text, &length);
    snprintf(who, sizeof who, "rank %d:", faulty);
    if (!strstr(text, path) || !strstr(text, who) || !strstr(text, strerror(error)) ||
        !strstr(text, bytes))
        fail(__LINE__, "the error is told as: %s", text);
    memcpy(first, text, sizeof first);
    if (is_same)
        MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(first, text) == 0);
}

/* The whole file, by the C library's own calls, which have no faults. */
static void move_file(int writes)
{
    size_t bytes = (size_t)ranks * ROUNDS * BLOCK;
    FILE *stream = fopen(path, writes ? "w" : "r");
    CHECK(stream && (writes ? fwrite(all, 1, bytes, stream) : fread(all, 1, bytes, stream)) == bytes);
    if (!stream)
        exit(3);
    CHECK(writes || fgetc(stream) == EOF);
    CHECK(fclose(stream) == 0);
}

static void check_form(int form, int writes)
{
    int is_collective = form >= AT_ALL, code = MPI_SUCCESS, round = 0;
    if (rank == 0) {
        fill(all, (size_t)ranks * ROUNDS * BLOCK, OLD);
        move_file(1);
    }
    meet();
    open_file(form);
    for (; code == MPI_SUCCESS && round < ROUNDS; round += code == MPI_SUCCESS) {
        fill(out[round], BLOCK, form * ROUNDS + round);
        code = access_block(form, writes, round);
        int bad = 0;
        for (int i = 0; !writes && form != SHARED && code == MPI_SUCCESS && i < BLOCK; i++)
            bad += in[i] != byte_of(OLD, place_of(form, round, i));
        SAME(bad, 0);
    }
    if (is_collective || rank == faulty)
        check_error(code, is_collective, " bytes at offset ");
    else
        OK(code);
    /* Afterwards the file is as before to all ranks. */
    MPI_Offset size;
    OK(MPI_File_get_size(file, &size));
    OK(MPI_File_close(&file));
    meet();
    move_file(0);
    int bad = 0;
    for (int r = 0; r < ROUNDS && form != SHARED; r++)
        for (int i = 0; i < BLOCK; i++) {
            MPI_Offset at = place_of(form, r, i);
            int is_old = all[at] == byte_of(OLD, at), is_new = writes && r <= round && all[at] == out[r][i];
            bad += writes && r < round ? !is_new : !is_old && !is_new;
        }
    if (bad)
        fail(__LINE__, "form %d: %d bytes of the file are wrong", form, bad);
    meet();
}

/* What one rank does for all, and what each does when it closes the file. */
static void check_rest(void)
{
    if (rank == 0)
        fclose(fopen(path, "w"));
    meet();
    open_file(AT);
    if (faulty == 0) {
        check_error(MPI_File_set_size(file, 5000), 1, "5000 bytes");
        check_error(MPI_File_preallocate(file, 5000), 1, "5000 bytes");
        MPI_Offset size;
        OK(MPI_File_get_size(file, &size));
        SAME(size, 0);
    }
    check_error(MPI_File_sync(file), 1, "");
    check_error(MPI_File_close(&file), 1, "");
    CHECK(file == MPI_FILE_NULL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc < 6)
        return 2;
    error = atoi(argv[2]);
    faulty = atoi(argv[3]);
    path = argv[4];
    layout = argv[5];
    row = strcmp(layout, "apart") == 0 ? 0 : strcmp(layout, "rows") == 0 ? 512 : 8;
    all = allocate((size_t)ranks * ROUNDS * BLOCK);
    if (strcmp(argv[1], "rest") == 0)
        check_rest();
    for (int form = 0; form < FORMS && strcmp(argv[1], "rest") != 0; form++)
        check_form(form, strcmp(argv[1], "write") == 0);
    free(all);
    return finish();
}
