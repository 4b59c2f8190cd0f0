/* Process sets that the launcher knows, given as NAME=SIZE: each is there, has so many ranks, and its members can talk.
 * Others than these and MPI's own three are not there.
 * test: only=build */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *name)
{
    printf("%s: %s\n", name, what);
    exit(1);
}

int main(int argc, char **argv)
{
    MPI_Session session;
    int count;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count);
    if (count != 3 + argc - 1)
        fail("not the number of process sets", argv[0]);
    for (int i = 1; i < argc; i++) {
        char name[MPI_MAX_PSET_NAME_LEN], found[MPI_MAX_PSET_NAME_LEN], text[32];
        int wanted, there = 0, flag = 0, room = sizeof text, size, rank;
        if (sscanf(argv[i], "%255[^=]=%d", name, &wanted) != 2)
            fail("no NAME=SIZE", argv[i]);
        for (int n = 0; n < count; n++) {
            int length = sizeof found;
            MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, found);
            there |= strcmp(found, name) == 0;
        }
        if (!there)
            fail("not listed", name);
        MPI_Info info;
        MPI_Session_get_pset_info(session, name, &info);
        MPI_Info_get_string(info, "mpi_size", &room, text, &flag);
        MPI_Info_free(&info);
        if (!flag || atoi(text) != wanted)
            fail("another mpi_size", name);
        MPI_Group group;
        MPI_Group_from_session_pset(session, name, &group);
        MPI_Group_size(group, &size);
        MPI_Group_rank(group, &rank);
        if (size != wanted)
            fail("another size of its group", name);
        if (rank != MPI_UNDEFINED) {
            MPI_Comm comm;
            int sum = 0;
            MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
            MPI_Comm_free(&comm);
            if (sum != size * (size - 1) / 2)
                fail("another sum of ranks", name);
        }
        MPI_Group_free(&group);
    }
    MPI_Session_finalize(&session);
    return 0;
}
