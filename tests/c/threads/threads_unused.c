/* What workers cost that no message has used: a promise of all members makes all seven, and each takes little memory.
 * docs/decisions/0064 says how much.
 * test: ranks=2 env=FASTPATH_WORKERS=several variants=none within=node */
#include "../check.h"

enum { FURTHER = 7, EACH_KIB = 16 };

/* KiB of memory that this process holds, its own and shared. */
static long resident(void)
{
    char line[200];
    long kib, all = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1 || sscanf(line, "RssShmem: %ld", &kib) == 1)
            all += kib;
    if (status)
        fclose(status);
    return all;
}

static MPI_Comm make(const char *promised)
{
    MPI_Comm comm;
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", promised));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    OK(MPI_Info_free(&info));
    OK(MPI_Barrier(comm));
    return comm;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm plain = make("false"); /* one worker, and whatever the calls touch for the first time */
    resident();
    long before = resident();
    MPI_Comm spread = make("true");
    long took = resident() - before;
    if (argc > 1)
        printf("rank %d: %ld KiB\n", rank, took);
    if (took > FURTHER * EACH_KIB)
        fail(__LINE__, "workers that nobody has used take %ld KiB", took);
    OK(MPI_Comm_free(&spread));
    OK(MPI_Comm_free(&plain));
    return finish();
}
