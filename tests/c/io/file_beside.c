/* Concurrent accesses of one rank: a thread writes for a request while the program writes itself, or as an
 * aggregator. Both use data sieving on ranges that overlap, and no written byte is lost. */
/* test: ranks=1,2,3 */
#include "file_check.h"

enum { PIECE = 600, PIECES = 4000, BYTES = PIECE * PIECES, ROUNDS = 15 };

static MPI_File file;
static char path[200], first[BYTES], second[BYTES], all[2 * BYTES];

static MPI_Info hints(const char *sieves)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_ds_write", sieves);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "cb_nodes", "1");
    return info;
}

/* Checks the value of the hint for sieved writes. */
static void is_told(const char *wanted)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int room = sizeof value, flag;
    MPI_Info info;
    OK(MPI_File_get_info(file, &info));
    MPI_Info_get_string(info, "romio_ds_write", &room, value, &flag);
    if (strcmp(value, wanted))
        fail(__LINE__, "romio_ds_write is \"%s\" instead of \"%s\"", value, wanted);
    MPI_Info_free(&info);
}

/* A datatype with one piece of bytes every `step` bytes. */
static MPI_Datatype tile(int step)
{
    MPI_Datatype piece, made;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, step, &made);
    MPI_Type_commit(&made);
    MPI_Type_free(&piece);
    return made;
}

/* Returns whether the view holds other bytes than this rank has written. */
static int differs(const char *written)
{
    OK(MPI_File_read_at(file, 0, all, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    return memcmp(all, written, BYTES) != 0;
}

/* Returns the number of rounds in which bytes were lost. */
static int write_alone(void)
{
    int lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        memset(first, 'A' + round, BYTES);
        memset(second, 'a' + round, BYTES);
        OK(MPI_File_iwrite_at(file, 0, first, BYTES, MPI_BYTE, &request));
        OK(MPI_File_write_at(file, BYTES, second, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, all, 2 * BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        lost += memcmp(all, first, BYTES) != 0 || memcmp(all + BYTES, second, BYTES) != 0;
    }
    return lost;
}

/* Each rank has its own file. The first BYTES bytes of the view are every second piece, the next BYTES bytes are the
 * pieces between them. */
static void test_alone(int atomic, const char *sieves)
{
    char own[220];
    MPI_Info info = hints(sieves);
    MPI_Datatype vector, type;
    snprintf(own, sizeof own, "%s.%d", path, rank);
    OK(MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    OK(MPI_File_set_size(file, 2 * BYTES));
    MPI_Type_vector(PIECES, PIECE, 2 * PIECE, MPI_BYTE, &vector);
    MPI_Type_create_resized(vector, 0, PIECE, &type);
    MPI_Type_commit(&type);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
    OK(MPI_File_set_atomicity(file, atomic));
    SAME(write_alone(), 0);
    OK(MPI_File_close(&file));
    MPI_Type_free(&type);
    MPI_Type_free(&vector);
    MPI_Info_free(&info);
    meet();
}

/* An outstanding request keeps the locking it began with when hints or atomicity change. */
static void test_change(int atomic)
{
    char own[220];
    MPI_Info off = hints("disable"), on = hints("enable");
    MPI_Datatype type = tile(2 * PIECE);
    int lost = 0;
    snprintf(own, sizeof own, "%s.%d", path, rank);
    OK(MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, off, &file));
    OK(MPI_File_set_size(file, 2 * BYTES));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        memset(first, 'A' + round, BYTES);
        memset(second, 'a' + round, BYTES);
        OK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
        OK(MPI_File_iwrite_at(file, 0, first, BYTES, MPI_BYTE, &request));
        OK(MPI_File_set_info(file, atomic || round % 2 ? off : on));
        if (atomic)
            OK(MPI_File_set_atomicity(file, round % 2));
        OK(MPI_File_set_view(file, PIECE, MPI_BYTE, type, "native", MPI_INFO_NULL));
        OK(MPI_File_write_at(file, 0, second, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        lost += differs(second);
        OK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
        lost += differs(first);
    }
    SAME(lost, 0);
    OK(MPI_File_close(&file));
    MPI_Type_free(&type);
    MPI_Info_free(&off);
    MPI_Info_free(&on);
    meet();
}

/* Rank 0 writes its blocks with a request and, meanwhile, those of the others as their aggregator. */
static void test_for_others(void)
{
    MPI_Info info = hints("enable");
    MPI_Datatype type = tile(PIECE * ranks);
    int lost = 0;
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    OK(MPI_File_set_view(file, PIECE * rank, MPI_BYTE, type, "native", MPI_INFO_NULL));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        memset(first, 'A' + round + rank, BYTES);
        meet();
        if (rank == 0)
            OK(MPI_File_iwrite_at(file, 0, first, BYTES, MPI_BYTE, &request));
        OK(MPI_File_write_at_all(file, 0, first, rank ? BYTES : 0, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        meet();
        lost += differs(first);
    }
    SAME(lost, 0);
    OK(MPI_File_close(&file));
    MPI_Type_free(&type);
    MPI_Info_free(&info);
    meet();
}

/* Only rank 0 enables sieved writes. No rank uses them, because the others would not lock. */
static void test_told_by_one(void)
{
    MPI_Info some = hints(rank == 0 ? "enable" : "automatic"), every = hints("enable");
    MPI_Datatype type = tile(PIECE * ranks);
    int lost = 0;
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, some, &file));
    is_told("automatic");
    OK(MPI_File_set_info(file, every));
    is_told("enable");
    OK(MPI_File_set_view(file, PIECE * rank, MPI_BYTE, type, "native", some));
    is_told("automatic");
    for (int round = 0; round < ROUNDS; round++) {
        memset(first, 'A' + round + rank, BYTES);
        meet();
        OK(MPI_File_write_at(file, 0, first, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        meet();
        lost += differs(first);
    }
    SAME(lost, 0);
    OK(MPI_File_close(&file));
    MPI_Type_free(&type);
    MPI_Info_free(&some);
    MPI_Info_free(&every);
    meet();
}

/* Two handles of one file, the first in atomic mode. A rank writes through the first handle, and the next rank writes
 * the pieces between through the other handle. No byte is lost. */
static void test_handles(int both, const char *sieves)
{
    enum { TURNS = 10 };
    MPI_Info info = hints(sieves);
    MPI_File handles[2];
    MPI_Datatype type = tile(ranks * PIECE);
    int lost = 0, mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    for (int i = 0; i < 2; i++) {
        OK(MPI_File_open(MPI_COMM_WORLD, path, i ? MPI_MODE_RDWR : mode, i ? MPI_INFO_NULL : info, &handles[i]));
        OK(MPI_File_set_view(handles[i], (MPI_Offset)rank * PIECE, MPI_BYTE, type, "native", MPI_INFO_NULL));
        OK(MPI_File_set_atomicity(handles[i], i == 0 || both));
    }
    file = handles[rank % 2];
    OK(MPI_File_set_size(handles[0], (MPI_Offset)ranks * BYTES));
    for (int turn = 0; turn < TURNS; turn++) {
        memset(first, 1 + turn, BYTES);
        meet();
        OK(MPI_File_write_at(file, 0, first, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        meet();
        lost += differs(first);
    }
    SAME(lost, 0);
    OK(MPI_File_close(&handles[1]));
    OK(MPI_File_close(&handles[0]));
    MPI_Type_free(&type);
    MPI_Info_free(&info);
    meet();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_beside");
    test_alone(1, "automatic");
    test_alone(0, "enable");
    test_change(0);
    test_change(1);
    if (ranks > 1) {
        test_for_others();
        test_told_by_one();
        for (int both = 0; both < 2; both++) {
            test_handles(both, "automatic");
            test_handles(both, "enable");
        }
    }
    return finish();
}
