/* Rank 0 says to a fifo that the job has begun, and spawns a process on the second host once it may (another fifo). Once
 * the third rank may, it asks for the name of a service, and says when that was answered: the launcher serves it while it
 * starts processes.
 * test: only=build */
#include "check.h"

static void tell(const char *fifo, const char *word)
{
    FILE *to = fopen(fifo, "w");
    CHECK(to);
    if (to) {
        fputs(word, to);
        fclose(to);
    }
}

static void await(const char *fifo)
{
    char word[10];
    FILE *from = fopen(fifo, "r");
    CHECK(from);
    if (from) {
        while (fgets(word, sizeof word, from))
            ;
        fclose(from);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent, inter;
    start(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        OK(MPI_Comm_disconnect(&parent));
        return finish();
    }
    CHECK(argc == 6 && ranks == 3);
    if (rank == 0) {
        MPI_Info info;
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "host", argv[5]));
        tell(argv[1], "begun");
        await(argv[2]);
        OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE));
        OK(MPI_Comm_disconnect(&inter));
        OK(MPI_Info_free(&info));
    }
    if (rank == 2) {
        char found[MPI_MAX_PORT_NAME] = "";
        await(argv[3]);
        OK(MPI_Publish_name(service_of("a service"), MPI_INFO_NULL, "anywhere"));
        OK(MPI_Lookup_name(service_of("a service"), MPI_INFO_NULL, found));
        CHECK(!strcmp(found, "anywhere"));
        OK(MPI_Unpublish_name(service_of("a service"), MPI_INFO_NULL, "anywhere"));
        tell(argv[4], "answered");
    }
    meet();
    return finish();
}
