/* Counters of files: system calls, stores, gaps, bytes exchanged between ranks. */
/* test: ranks=1,2,3 mistakes=yes */
#include "../check.h"
#include <unistd.h>

enum { PIECES = 4096, PIECE = 8, STRIDE = 32 };

static MPI_T_pvar_session session;
static MPI_File file;
static char path[200], memory[PIECES * PIECE];

static MPI_T_pvar_handle start_counter(const char *name)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index, count;
    SAME(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index), MPI_SUCCESS);
    SAME(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count), MPI_SUCCESS);
    SAME(MPI_T_pvar_start(session, handle), MPI_SUCCESS);
    return handle;
}

/* Increase of a counter since the last call. */
static unsigned long long take(MPI_T_pvar_handle counter)
{
    unsigned long long value = 0;
    SAME(MPI_T_pvar_readreset(session, counter, &value), MPI_SUCCESS);
    return value;
}

int main(int argc, char **argv)
{
    int provided;
    start(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    SAME(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    MPI_T_pvar_handle reads = start_counter("file_reads"), read_bytes = start_counter("file_bytes_read"),
                      writes = start_counter("file_writes"), written = start_counter("file_bytes_written"),
                      mappings = start_counter("file_mappings"), stored = start_counter("file_bytes_stored"),
                      sieved = start_counter("file_ranges_sieved"), gaps = start_counter("file_bytes_sieved"),
                      exchanges = start_counter("file_exchanges"), exchanged = start_counter("file_bytes_exchanged");
    const char *folder = getenv("TMPDIR");
    long job = getpid();
    MPI_Info info;
    MPI_Bcast(&job, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/counted.%ld", folder && *folder ? folder : "/tmp", job);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "disable");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));

    /* One piece. */
    OK(MPI_File_write_at(file, 2000 * rank, memory, 1000, MPI_BYTE, MPI_STATUS_IGNORE));
    SAME(take(writes), 1);
    SAME(take(written), 1000);
    OK(MPI_File_read_at(file, 2000 * rank, memory, 600, MPI_BYTE, MPI_STATUS_IGNORE));
    SAME(take(reads), 1);
    SAME(take(read_bytes), 600);

    /* Small pieces: written by stores to a mapping or one call each; read with their gaps. */
    MPI_Datatype piece, tile, type;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, STRIDE, &tile);
    MPI_Type_contiguous(PIECES, tile, &type);
    MPI_Type_commit(&type);
    OK(MPI_File_set_view(file, (MPI_Offset)rank * PIECES * STRIDE, MPI_BYTE, type, "native", info));
    OK(MPI_File_write_at(file, 0, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
    unsigned long long calls = take(writes), maps = take(mappings);
    CHECK((calls == PIECES && maps == 0) || (calls == 0 && maps == 1));
    SAME(take(written) + take(stored), sizeof memory);
    OK(MPI_File_read_at(file, 0, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(take(reads) < PIECES && take(sieved) >= 1);
    unsigned long long between = take(gaps);
    SAME(take(read_bytes), sizeof memory + between);
    CHECK(between >= (PIECES - PIECES / 64) * (STRIDE - PIECE) && between < PIECES * (STRIDE - PIECE));
    SAME(take(exchanges), 0);

    /* Collective: the pieces of the ranks alternate and pass through aggregators if there are several ranks. */
    MPI_Type_free(&type);
    MPI_Type_free(&tile);
    MPI_Type_create_resized(piece, 0, (MPI_Aint)PIECE * ranks, &type);
    MPI_Type_commit(&type);
    OK(MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, type, "native", info));
    OK(MPI_File_write_all(file, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
    unsigned long long times = take(exchanges), bytes = take(exchanged), own = take(written) + take(stored), all = 0;
    SAME(bytes, times * sizeof memory);
    SAME(times, ranks > 1);
    MPI_Allreduce(&own, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    SAME(all, ranks * sizeof memory);
    OK(MPI_File_read_at_all(file, 0, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
    SAME(take(exchanges), 0);

    MPI_Type_free(&type);
    MPI_Type_free(&piece);
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return finish();
}
