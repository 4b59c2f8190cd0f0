/* What tests/jobs/files.py makes of files: a full disk, a rank that is killed in a collective write, and the file after
 * that; a file that cannot be written. Words: full | kill | again | fixed, then the file; and, for rows of all ranks in
 * turn, `together` where they go by way of others, or `pieces` where they are small and each rank stores its own. */
/* test: only=build */
#include "check.h"
#include <signal.h>

enum { BLOCK = 1 << 16 };

static MPI_File file;
static MPI_Status status;
static char out[BLOCK], in[BLOCK];
static int row, together;

static void open_file(const char *path)
{
    MPI_Info info;
    MPI_Info_create(&info);
    if (row) {
        MPI_Info_set(info, "romio_cb_write", together ? "enable" : "disable");
        MPI_Info_set(info, "romio_cb_read", together ? "enable" : "disable");
        MPI_Info_set(info, "cb_buffer_size", "20000");
        MPI_Info_set(info, "cb_nodes", "2");
    }
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    if (row) {
        MPI_Datatype tile;
        int tile_bytes = (ranks + 1) * row;
        MPI_Type_create_subarray(1, &tile_bytes, &row, (int[]){rank * row}, MPI_ORDER_C, MPI_BYTE, &tile);
        MPI_Type_commit(&tile);
        OK(MPI_File_set_view(file, 0, MPI_BYTE, tile, "native", MPI_INFO_NULL));
        MPI_Type_free(&tile);
    }
    MPI_Info_free(&info);
}

/* Where block `round` of this rank begins in its view. */
static MPI_Offset block_at(int round)
{
    return (MPI_Offset)(row ? round : round * ranks + rank) * BLOCK;
}

/* A rank alone leaves its small pieces to the library's thread. */
static int write_block(int round)
{
    MPI_Request request;
    if (ranks > 1 || together || !row)
        return MPI_File_write_at_all(file, block_at(round), out, BLOCK, MPI_BYTE, &status);
    int code = MPI_File_iwrite_at(file, block_at(round), out, BLOCK, MPI_BYTE, &request);
    return code ? code : MPI_Wait(&request, &status);
}

/* All ranks learn of the same error in the same words, and what was written before is there. */
static void fill_disk(const char *path)
{
    open_file(path);
    int round = 0, code = MPI_SUCCESS;
    while (code == MPI_SUCCESS && round < 100) {
        fill(out, BLOCK, round * 16 + rank);
        code = write_block(round);
        round += code == MPI_SUCCESS;
    }
    CLASS(code, MPI_ERR_NO_SPACE);
    CHECK(round > 0 && round < 100);
    char text[MPI_MAX_ERROR_STRING], first[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    memcpy(first, text, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(first, text) == 0);
    CHECK(strstr(text, path) && strstr(text, "offset") && strstr(text, "No space") && strstr(text, "rank "));
    for (int r = 0; r < round; r++) {
        OK(MPI_File_read_at_all(file, block_at(r), in, BLOCK, MPI_BYTE, &status));
        HOLDS(in, BLOCK, r * 16 + rank);
    }
    CLASS(MPI_File_preallocate(file, (MPI_Offset)1 << 30), MPI_ERR_NO_SPACE);
    OK(MPI_File_close(&file));
}

/* The file is on a file system that is mounted to be read. */
static void check_fixed(const char *path)
{
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_READ_ONLY);
    CLASS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
          MPI_ERR_READ_ONLY);
    CLASS(MPI_File_delete(path, MPI_INFO_NULL), MPI_ERR_READ_ONLY);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_read_at_all(file, 0, in, 3, MPI_BYTE, &status));
    CHECK(memcmp(in, "old", 3) == 0);
    OK(MPI_File_sync(file));
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc < 3)
        return 2;
    together = argc > 3 && strcmp(argv[3], "together") == 0;
    row = together ? 512 : argc > 3 ? 8 : 0;
    if (strcmp(argv[1], "full") == 0) {
        fill_disk(argv[2]);
    } else if (strcmp(argv[1], "fixed") == 0) {
        check_fixed(argv[2]);
    } else if (strcmp(argv[1], "kill") == 0) {
        open_file(argv[2]);
        for (int round = 0; round < 1000; round++) {
            memset(out, 'x', BLOCK);
            MPI_Request request;
            if (round == 20 && rank == ranks - 1 && together)
                MPI_File_iwrite_at_all(file, block_at(0), out, BLOCK, MPI_BYTE, &request);
            if (round == 20 && rank == ranks - 1)
                raise(SIGKILL);
            MPI_File_write_at_all(file, block_at(0), out, BLOCK, MPI_BYTE, &status);
        }
    } else {
        open_file(argv[2]);
        OK(MPI_File_read_at_all(file, block_at(0), in, BLOCK, MPI_BYTE, &status));
        memset(out, 'x', BLOCK);
        CHECK(memcmp(in, out, BLOCK) == 0);
        OK(MPI_File_write_shared(file, out, 1, MPI_BYTE, &status));
        OK(MPI_File_close(&file));
    }
    return finish();
}
