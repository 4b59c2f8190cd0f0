/* Files: every form of access compared with a model of the bytes; shared pointer and ordered access without gap or
 * overlap; atomic mode; requests and split accesses. */
/* test: ranks=1,2,3,4,8 */
#include "../check.h"
#include <unistd.h>

enum { RECORD = 100, RECORDS = 50 };

static char path[200];
static MPI_File file;
static MPI_Status status;

static void write_shared(int ways)
{
    char record[RECORD];
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < RECORDS; i++) {
        MPI_Request request;
        memset(record, (rank * RECORDS + i) & 0x7f, RECORD);
        memcpy(record, (int[]){rank, i}, 8);
        if (ways == 0 || i % 2) {
            OK(MPI_File_write_shared(file, record, RECORD, MPI_CHAR, &status));
        } else {
            OK(MPI_File_iwrite_shared(file, record, RECORD, MPI_CHAR, &request));
            OK(MPI_Wait(&request, &status));
        }
    }
    meet();
    /* Every record is present once, and the records of one rank are in order. */
    MPI_Offset size;
    OK(MPI_File_get_size(file, &size));
    SAME(size, (MPI_Offset)RECORD * RECORDS * ranks);
    int next[64] = {0};
    for (int n = 0; n < RECORDS * ranks; n++) {
        int head[2];
        OK(MPI_File_read_at(file, (MPI_Offset)n * RECORD, record, RECORD, MPI_CHAR, &status));
        memcpy(head, record, 8);
        if (head[0] < 0 || head[0] >= ranks || head[1] != next[head[0]]) {
            fail(__LINE__, "record %d is %d of rank %d", n, head[1], head[0]);
            break;
        }
        next[head[0]]++;
        CHECK(record[50] == ((head[0] * RECORDS + head[1]) & 0x7f) && record[99] == record[8]);
    }
    MPI_Offset position;
    OK(MPI_File_get_position_shared(file, &position));
    SAME(position, size);
    meet();
}

/* Reads the records of write_shared: each record is read by one rank, whole. */
static void read_shared(void)
{
    static int seen[64 * RECORDS];
    memset(seen, 0, sizeof seen);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < RECORDS; i++) {
        MPI_Request request;
        char record[RECORD];
        int head[2], count;
        if (i % 2) {
            OK(MPI_File_read_shared(file, record, RECORD, MPI_CHAR, &status));
        } else {
            OK(MPI_File_iread_shared(file, record, RECORD, MPI_CHAR, &request));
            OK(MPI_Wait(&request, &status));
        }
        MPI_Get_count(&status, MPI_CHAR, &count);
        SAME(count, RECORD);
        memcpy(head, record, 8);
        CHECK(head[0] >= 0 && head[0] < ranks && head[1] >= 0 && head[1] < RECORDS);
        CHECK(record[50] == ((head[0] * RECORDS + head[1]) & 0x7f) && record[99] == record[8]);
        if (head[0] >= 0 && head[0] < ranks && head[1] >= 0 && head[1] < RECORDS)
            seen[head[0] * RECORDS + head[1]]++;
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, ranks * RECORDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int n = 0; n < ranks * RECORDS; n++)
        SAME(seen[n], 1);
    meet();
}

static void test_ordered(void)
{
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    int out[20], in[20];
    for (int round = 0; round < 3; round++) {
        int count = rank + round; /* rank 0 has none in the first round */
        for (int i = 0; i < count; i++)
            out[i] = round * 10000 + rank * 100 + i;
        if (round % 2 == 0) {
            OK(MPI_File_write_ordered(file, out, count, MPI_INT, &status));
        } else {
            OK(MPI_File_write_ordered_begin(file, out, count, MPI_INT));
            CLASS(MPI_File_write_ordered(file, out, count, MPI_INT, &status), MPI_ERR_OTHER);
            CLASS(MPI_File_read_all_end(file, out, &status), MPI_ERR_OTHER);
            OK(MPI_File_write_ordered_end(file, out, &status));
        }
    }
    meet();
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int round = 0; round < 3; round++) {
        int count = rank + round, got;
        if (round % 2) {
            OK(MPI_File_read_ordered(file, in, count, MPI_INT, &status));
        } else {
            OK(MPI_File_read_ordered_begin(file, in, count, MPI_INT));
            OK(MPI_File_read_ordered_end(file, in, &status));
        }
        MPI_Get_count(&status, MPI_INT, &got);
        SAME(got, count);
        for (int i = 0; i < count; i++)
            SAME(in[i], round * 10000 + rank * 100 + i);
    }
    CLASS(MPI_File_read_ordered_end(file, in, &status), MPI_ERR_OTHER);
    meet();
}

/* A read in atomic mode returns the bytes of one write only. */
static void test_atomic(void)
{
    enum { BYTES = 20000 };
    static char own[BYTES], seen[BYTES];
    OK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_size(file, BYTES));
    OK(MPI_File_set_atomicity(file, 1));
    for (int round = 0; round < 30; round++) {
        memset(own, 1 + rank + round * 8 % 100, BYTES);
        OK(MPI_File_write_at(file, 0, own, BYTES, MPI_CHAR, &status));
        OK(MPI_File_read_at(file, 0, seen, BYTES, MPI_CHAR, &status));
        int mixed = 0;
        for (int i = 1; i < BYTES; i++)
            mixed += seen[i] != seen[0];
        SAME(mixed, 0);
        CHECK(seen[0] != 0);
    }
    OK(MPI_File_set_atomicity(file, 0));
    meet();
}

static unsigned state;
static unsigned draw(unsigned below)
{
    state = state * 1103515245u + 12345u;
    return (state >> 8) % below;
}

/* All ranks know all writes. Each round has a random view, access and memory layout; then all bytes are compared. */
static void test_random(void)
{
    enum { SPACE = 1 << 16 };
    static unsigned char model[SPACE * 4], there[SPACE * 4], out[SPACE], in[SPACE];
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_set_size(file, 0));
    memset(model, 0, sizeof model);
    MPI_Offset end = 0;
    for (int round = 0; round < 25; round++) {
        int block = 1 + draw(40), hole = draw(20), tiles = 1 + draw(60), shift = draw(1000), skip = draw(5);
        int how = draw(6), stride = block * ranks + hole;
        MPI_Datatype tile, bytes;
        MPI_Type_contiguous(block, MPI_BYTE, &bytes);
        MPI_Type_create_resized(bytes, 0, stride, &tile);
        MPI_Type_commit(&tile);
        OK(MPI_File_set_view(file, shift + rank * block, MPI_BYTE, tile, "native", MPI_INFO_NULL));
        int count = block * tiles, got = -1;
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < count; i++) {
                int at = skip + i;
                MPI_Offset place = shift + r * block + (MPI_Offset)(at / block) * stride + at % block;
                model[place] = byte_of(round * 64 + r, i);
                end = place + 1 > end ? place + 1 : end;
            }
        fill(out, count, round * 64 + rank);
        memset(in, 0, sizeof in);
        MPI_Request request;
        switch (how) {
        case 0:
            OK(MPI_File_write_at(file, skip, out, count, MPI_BYTE, &status));
            meet();
            OK(MPI_File_read_at(file, skip, in, count, MPI_BYTE, &status));
            break;
        case 1:
            OK(MPI_File_write_at_all(file, skip, out, count, MPI_BYTE, &status));
            OK(MPI_File_read_at_all(file, skip, in, count, MPI_BYTE, &status));
            break;
        case 2:
            OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
            OK(MPI_File_write_all(file, out, count, MPI_BYTE, &status));
            OK(MPI_File_seek(file, -count, MPI_SEEK_CUR));
            OK(MPI_File_read_all(file, in, count, MPI_BYTE, &status));
            break;
        case 3:
            OK(MPI_File_iwrite_at(file, skip, out, count, MPI_BYTE, &request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_File_iread_at(file, skip, in, count, MPI_BYTE, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 4:
            OK(MPI_File_write_at_all_begin(file, skip, out, count, MPI_BYTE));
            OK(MPI_File_write_at_all_end(file, out, &status));
            OK(MPI_File_read_at_all_begin(file, skip, in, count, MPI_BYTE));
            OK(MPI_File_read_at_all_end(file, in, &status));
            break;
        default:
            OK(MPI_File_seek(file, skip, MPI_SEEK_SET));
            OK(MPI_File_iwrite_all(file, out, count, MPI_BYTE, &request));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Wait(&request, &status));
            OK(MPI_File_iread_at_all(file, skip, in, count, MPI_BYTE, &request));
            OK(MPI_Wait(&request, &status));
        }
        MPI_Get_count(&status, MPI_BYTE, &got);
        SAME(got, count);
        HOLDS(in, count, round * 64 + rank);
        MPI_Type_free(&tile);
        MPI_Type_free(&bytes);
        meet();
        OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
        MPI_Offset size;
        OK(MPI_File_get_size(file, &size));
        SAME(size, end);
        OK(MPI_File_read_at_all(file, 0, there, end, MPI_BYTE, &status));
        CHECK(memcmp(there, model, end) == 0);
        meet();
    }
}

static void test_sequential(void)
{
    MPI_File one;
    char letter = 'a' + rank;
    MPI_Offset size;
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &one));
    CLASS(MPI_File_write(one, &letter, 1, MPI_CHAR, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    CLASS(MPI_File_write_at(one, 0, &letter, 1, MPI_CHAR, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    CLASS(MPI_File_seek(one, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_write_ordered(one, &letter, 1, MPI_CHAR, &status));
    OK(MPI_File_set_view(one, MPI_DISPLACEMENT_CURRENT, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(one, &letter, 1, MPI_CHAR, &status));
    OK(MPI_File_close(&one));
    OK(MPI_File_get_size(file, &size));
    SAME(size, 2 * ranks);
    for (int i = 0; i < 2 * ranks; i++) {
        OK(MPI_File_read_at(file, i, &letter, 1, MPI_CHAR, &status));
        SAME(letter, 'a' + i % ranks);
    }
    meet();
}

/* Long pieces of memory with gaps, more than one system call accepts. Each rank has a part of the file. */
static void test_scattered(void)
{
    enum { PIECES = 1500, PIECE = 4100, GAP = 60, ALL = PIECES * PIECE };
    MPI_Offset own = (MPI_Offset)rank * ALL;
    unsigned char *pieces = malloc(PIECES * (PIECE + GAP)), *whole = malloc(ALL);
    MPI_Datatype type;
    int bytes;
    OK(MPI_Type_vector(PIECES, PIECE, PIECE + GAP, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    for (int i = 0; i < PIECES * (PIECE + GAP); i++)
        pieces[i] = i % (PIECE + GAP) < PIECE ? (i / 7 + rank) % 251 : 255;
    OK(MPI_File_write_at(file, own, pieces, 1, type, &status));
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    SAME(bytes, ALL);
    OK(MPI_File_read_at(file, own, whole, ALL, MPI_BYTE, &status));
    int wrong = 0;
    for (int i = 0; i < ALL; i++)
        wrong += whole[i] != ((i / PIECE * (PIECE + GAP) + i % PIECE) / 7 + rank) % 251;
    SAME(wrong, 0);
    memset(pieces, 254, PIECES * (PIECE + GAP));
    OK(MPI_File_read_at(file, own, pieces, 1, type, &status));
    for (int i = 0; i < PIECES * (PIECE + GAP); i++)
        wrong += pieces[i] != (i % (PIECE + GAP) < PIECE ? (i / 7 + rank) % 251 : 254);
    SAME(wrong, 0);
    meet();
    /* A read that ends at the end of file reports its count and leaves the rest of the buffer unchanged. */
    memset(pieces, 254, PIECES * (PIECE + GAP));
    OK(MPI_File_read_at(file, (MPI_Offset)ranks * ALL - 5000, pieces, 1, type, &status));
    MPI_Get_elements(&status, MPI_BYTE, &bytes);
    SAME(bytes, 5000);
    SAME(pieces[PIECE + GAP + 899], (((PIECES - 1) * (PIECE + GAP) + PIECE - 1) / 7 + ranks - 1) % 251);
    SAME(pieces[PIECE + GAP + 900], 254);
    MPI_Type_free(&type);
    free(pieces);
    free(whole);
    meet();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int job = rank == 0 ? getpid() : 0;
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    state = job;
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/file_access.%d", folder ? folder : "/tmp", job);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    write_shared(0);
    write_shared(1);
    read_shared();
    test_ordered();
    test_atomic();
    test_random();
    test_scattered();
    test_sequential();
    OK(MPI_File_close(&file));
    CLASS(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    return finish();
}
