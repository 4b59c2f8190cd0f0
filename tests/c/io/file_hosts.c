/* Consistency of a file on a mount shared by several hosts: small pieces of all ranks in the same pages, visibility
 * after MPI_File_sync or in atomic mode, size, and files just created by another rank. The case `nfs` of tests/vm
 * runs it over NFS, where hosts cache separately. With the argument `local`, locks are effective within one host
 * only, so there is no atomic mode. */
/* test: ranks=1,2,3,4,8 */
#include "file_check.h"

enum { PIECE = 100, PIECES = 200, BLOCK = 20000, ROUNDS = 20, MOST = 64 };

static MPI_File file;
static MPI_Status status;
static char path[200], name[210];
static unsigned char out[MOST * BLOCK], in[MOST * BLOCK];

/* Makes the data written by every rank visible to all (MPI 5.0, section 14.6.1). */
static void exchange(void)
{
    OK(MPI_File_sync(file));
    meet();
    OK(MPI_File_sync(file));
}

/* Piece `i` of rank `r` in round `round`. */
static unsigned seed_of(int round, int r, int i)
{
    return round * 7919 + r * 211 + i;
}

/* Interleaved pieces, so that every page has some of each rank. All ranks have read the pages before. */
static void test_pieces(void)
{
    OK(MPI_File_set_size(file, (MPI_Offset)PIECE * PIECES * ranks));
    for (int round = 0; round < 3; round++) {
        OK(MPI_File_read_at(file, 0, in, PIECE * PIECES * ranks, MPI_BYTE, &status));
        meet();
        for (int i = 0; i < PIECES; i++) {
            fill(out, PIECE, seed_of(round, rank, i));
            OK(MPI_File_write_at(file, (MPI_Offset)(i * ranks + rank) * PIECE, out, PIECE, MPI_BYTE, &status));
            if (i % 17 == 3)
                OK(MPI_File_read_at(file, (MPI_Offset)i * PIECE, in, PIECE, MPI_BYTE, &status));
        }
        exchange();
        OK(MPI_File_read_at(file, 0, in, PIECE * PIECES * ranks, MPI_BYTE, &status));
        for (int i = 0; i < PIECES; i++)
            for (int r = 0; r < ranks; r++)
                HOLDS(in + (i * ranks + r) * PIECE, PIECE, seed_of(round, r, i));
        meet();
    }
}

/* Interleaved pieces by collective calls and a view. */
static void test_together(void)
{
    MPI_Datatype piece, tile;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, PIECE * ranks, &tile);
    MPI_Type_commit(&piece);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, (MPI_Offset)PIECE * rank, piece, tile, "native", MPI_INFO_NULL));
    for (int i = 0; i < PIECES; i++)
        fill(out + i * PIECE, PIECE, seed_of(5, rank, i));
    OK(MPI_File_write_at_all(file, 0, out, PIECES, piece, &status));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    exchange();
    OK(MPI_File_read_at_all(file, 0, in, PIECE * PIECES * ranks, MPI_BYTE, &status));
    for (int i = 0; i < PIECES; i++)
        for (int r = 0; r < ranks; r++)
            HOLDS(in + (i * ranks + r) * PIECE, PIECE, seed_of(5, r, i));
    MPI_Type_free(&tile);
    MPI_Type_free(&piece);
}

/* All ranks write and read one block. A read returns one whole write. After a message, a read returns the write that
 * preceded the message. */
static void test_atomic(void)
{
    OK(MPI_File_set_atomicity(file, 1));
    memset(out, 0, BLOCK);
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, out, BLOCK, MPI_BYTE, &status));
    meet();
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, round * ranks + rank, BLOCK);
        OK(MPI_File_write_at(file, 0, out, BLOCK, MPI_BYTE, &status));
        OK(MPI_File_read_at(file, 0, in, BLOCK, MPI_BYTE, &status));
        for (int i = 1; i < BLOCK; i++)
            if (in[i] != in[0]) {
                fail(__LINE__, "round %d: byte 0 is %d and byte %d is %d", round, in[0], i, in[i]);
                break;
            }
    }
    meet();
    for (int round = 0; round < 2 * ranks; round++) {
        int writer = round % ranks;
        memset(out, 100 + round, BLOCK);
        if (rank == writer)
            OK(MPI_File_write_at(file, 0, out, BLOCK, MPI_BYTE, &status));
        meet();
        OK(MPI_File_read_at(file, 0, in, BLOCK, MPI_BYTE, &status));
        CHECK(memcmp(in, out, BLOCK) == 0);
        meet();
    }
    OK(MPI_File_set_atomicity(file, 0));
}

/* Records of all ranks by the shared pointer: no gap, no overlap. */
static void test_shared(void)
{
    int seen[MOST] = {0};
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < PIECES; i++) {
        memset(out, 0, PIECE);
        memcpy(out, (int[]){rank, i}, 8);
        OK(MPI_File_write_shared(file, out, PIECE, MPI_BYTE, &status));
    }
    exchange();
    MPI_Offset size;
    OK(MPI_File_get_size(file, &size));
    SAME(size, (MPI_Offset)PIECE * PIECES * ranks);
    OK(MPI_File_read_at(file, 0, in, PIECE * PIECES * ranks, MPI_BYTE, &status));
    for (int n = 0; n < PIECES * ranks; n++) {
        int head[2];
        memcpy(head, in + n * PIECE, 8);
        if (head[0] < 0 || head[0] >= ranks || head[1] != seen[head[0]]++) {
            fail(__LINE__, "record %d is record %d of rank %d", n, head[1], head[0]);
            break;
        }
    }
    meet();
}

/* Each rank in turn changes the file size, and all ranks see it. */
static void test_size(void)
{
    MPI_Offset size;
    for (int writer = 0; writer < ranks; writer++) {
        OK(MPI_File_set_size(file, 10));
        OK(MPI_File_get_size(file, &size));
        SAME(size, 10);
        meet();
        if (rank == writer)
            OK(MPI_File_write_at(file, 1000 + writer, "end", 3, MPI_BYTE, &status));
        exchange();
        OK(MPI_File_get_size(file, &size));
        SAME(size, 1003 + writer);
        OK(MPI_File_preallocate(file, 5000));
        OK(MPI_File_get_size(file, &size));
        SAME(size, 5000);
        meet();
    }
}

/* A barrier, followed by a pause of more than one tick of a server's clock, which may have 100 ticks a second. Two
 * changes of a folder within one tick look alike to a host that reads it between them. */
static void meet_later(void)
{
    meet();
    usleep(20000);
    meet();
}

/* A file that this rank has just missed is visible once another rank has created it. If the file is created anew,
 * its old contents are gone. */
static void test_made_by_another(void)
{
    for (int maker = 0; maker < ranks; maker++) {
        CLASS(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
        meet_later();
        if (rank == maker) {
            fill(out, BLOCK, maker);
            OK(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
            OK(MPI_File_write(file, out, BLOCK, MPI_BYTE, &status));
            OK(MPI_File_close(&file));
        }
        meet_later();
        OK(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
        OK(MPI_File_read(file, in, BLOCK, MPI_BYTE, &status));
        HOLDS(in, BLOCK, maker);
        OK(MPI_File_close(&file));
        meet_later();
        if (rank == ranks - 1 - maker)
            OK(MPI_File_delete(name, MPI_INFO_NULL));
        meet_later();
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_hosts");
    snprintf(name, sizeof name, "nfs:%s", path);
    test_made_by_another();
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    test_pieces();
    test_together();
    test_shared();
    test_size();
    if (argc > 1)
        CLASS(MPI_File_set_atomicity(file, 1), MPI_ERR_UNSUPPORTED_OPERATION);
    else
        test_atomic();
    OK(MPI_File_close(&file));
    CLASS(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    return finish();
}
