/* Ports between the halves of a job and between parents and children, several callers of one port, service names,
 * sockets shared by two processes, and rejected arguments.
 * test: ranks=2,3,4 timeout=120 */
#define _GNU_SOURCE
#include "../check.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *program;

/* A sum over both sides, and a message each way between the first ranks. */
static void use(MPI_Comm inter, int expected)
{
    int own, there, sum = 0, one = 1, got = -1;
    MPI_Comm_rank(inter, &own);
    MPI_Comm_remote_size(inter, &there);
    SAME(there, expected);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    SAME(sum, there);
    if (own == 0) {
        OK(MPI_Sendrecv(&one, 1, MPI_INT, 0, 3, &got, 1, MPI_INT, 0, 3, inter, MPI_STATUS_IGNORE));
        SAME(got, 1);
    }
}

static void pass_name(char *name, int from, int to)
{
    if (rank == from)
        OK(MPI_Send(name, MPI_MAX_PORT_NAME, MPI_CHAR, to, 9, MPI_COMM_WORLD));
    if (rank == to)
        OK(MPI_Recv(name, MPI_MAX_PORT_NAME, MPI_CHAR, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Even ranks accept, odd ranks connect, many times with changing roots. */
static void check_halves(void)
{
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    int odd = rank % 2, own, here;
    OK(MPI_Comm_split(MPI_COMM_WORLD, odd, rank, &half));
    MPI_Comm_rank(half, &own);
    MPI_Comm_size(half, &here);
    if (rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, name));
    int last = ranks - 1 - ranks % 2; /* the last odd rank */
    pass_name(name, 0, last);
    for (int round = 0; round < 5; round++) {
        if (odd)
            OK(MPI_Comm_connect(own == here - 1 ? name : NULL, MPI_INFO_NULL, here - 1, half, &inter));
        else
            OK(MPI_Comm_accept(own == 0 ? name : NULL, MPI_INFO_NULL, 0, half, &inter));
        use(inter, ranks - here);
        OK(MPI_Comm_disconnect(&inter));
    }
    if (rank == 0)
        OK(MPI_Close_port(name));
    OK(MPI_Comm_free(&half));
}

/* Every other rank connects to rank 0 separately. */
static void check_callers(void)
{
    char name[MPI_MAX_PORT_NAME];
    MPI_Comm inter;
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, name));
        OK(MPI_Publish_name(service_of("callers"), MPI_INFO_NULL, name));
    }
    meet();
    int rounds = rank == 0 ? 3 * (ranks - 1) : 3;
    if (rank != 0)
        OK(MPI_Lookup_name(service_of("callers"), MPI_INFO_NULL, name));
    for (int round = 0; round < rounds; round++) {
        if (rank == 0)
            OK(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        else
            OK(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        use(inter, 1);
        OK(MPI_Comm_disconnect(&inter));
    }
    meet();
    if (rank == 0) {
        OK(MPI_Unpublish_name(service_of("callers"), MPI_INFO_NULL, name));
        OK(MPI_Close_port(name));
    }
    meet();
}

static void check_names(void)
{
    char name[MPI_MAX_PORT_NAME], of_rank[40];
    snprintf(of_rank, sizeof of_rank, "service of %d", rank);
    const char *service = service_of(of_rank);
    CLASS(MPI_Lookup_name(service, MPI_INFO_NULL, name), MPI_ERR_NAME);
    OK(MPI_Publish_name(service, MPI_INFO_NULL, "anywhere"));
    CLASS(MPI_Publish_name(service, MPI_INFO_NULL, "elsewhere"), MPI_ERR_SERVICE);
    OK(MPI_Lookup_name(service, MPI_INFO_NULL, name));
    CHECK(strcmp(name, "anywhere") == 0);
    CLASS(MPI_Unpublish_name(service, MPI_INFO_NULL, "elsewhere"), MPI_ERR_SERVICE);
    OK(MPI_Unpublish_name(service, MPI_INFO_NULL, "anywhere"));
    CLASS(MPI_Unpublish_name(service, MPI_INFO_NULL, "anywhere"), MPI_ERR_SERVICE);
}

static void check_refused(void)
{
    char name[MPI_MAX_PORT_NAME], again[MPI_MAX_PORT_NAME];
    MPI_Comm inter = MPI_COMM_SELF;
    OK(MPI_Open_port(MPI_INFO_NULL, name));
    OK(MPI_Open_port(MPI_INFO_NULL, again));
    CHECK(strcmp(name, again) != 0);
    OK(MPI_Close_port(name));
    CLASS(MPI_Close_port(name), MPI_ERR_PORT);
    CLASS(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    SAME(inter, MPI_COMM_NULL);
    CLASS(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    CLASS(MPI_Comm_connect("no port", MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    CLASS(MPI_Comm_connect("fastpath:0123456789abcdef:0:1", MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    CLASS(MPI_Comm_connect(again, MPI_INFO_NULL, 7, MPI_COMM_SELF, &inter), MPI_ERR_ROOT);
    OK(MPI_Close_port(again));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CLASS(MPI_Comm_connect("no port", MPI_INFO_NULL, ranks - 1, MPI_COMM_WORLD, &inter), MPI_ERR_PORT);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* A connect that reaches its timeout returns an error, and the port is free for the next caller. */
static void check_timeout(void)
{
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter = MPI_COMM_SELF;
    MPI_Info soon;
    MPI_Info_create(&soon);
    MPI_Info_set(soon, "timeout", "0");
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, name));
        CLASS(MPI_Comm_accept(name, soon, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
        SAME(inter, MPI_COMM_NULL);
    }
    pass_name(name, 0, 1);
    if (rank == 1)
        for (int round = 0; round < 2; round++)
            CLASS(MPI_Comm_connect(name, soon, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    meet();
    MPI_Info_set(soon, "timeout", "soon");
    if (rank == 1)
        CLASS(MPI_Comm_connect(name, soon, 0, MPI_COMM_SELF, &inter), MPI_ERR_INFO_VALUE);
    MPI_Info_set(soon, "timeout", "3600");
    if (rank == 0)
        OK(MPI_Comm_accept(name, soon, 0, MPI_COMM_SELF, &inter));
    if (rank == 1)
        OK(MPI_Comm_connect(name, soon, 0, MPI_COMM_SELF, &inter));
    if (rank < 2) {
        use(inter, 1);
        OK(MPI_Comm_disconnect(&inter));
    }
    if (rank == 0)
        OK(MPI_Close_port(name));
    MPI_Info_free(&soon);
}

/* A child finds a port of its parents by service name. */
static void check_child(void)
{
    char name[MPI_MAX_PORT_NAME];
    MPI_Comm children, inter;
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, name));
        OK(MPI_Publish_name(service_of("parents"), MPI_INFO_NULL, name));
    }
    OK(MPI_Comm_spawn(program, MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    use(inter, 2);
    OK(MPI_Comm_disconnect(&inter));
    OK(MPI_Comm_disconnect(&children));
    if (rank == 0) {
        OK(MPI_Unpublish_name(service_of("parents"), MPI_INFO_NULL, name));
        OK(MPI_Close_port(name));
    }
}

static void be_child(MPI_Comm parent)
{
    char name[MPI_MAX_PORT_NAME];
    MPI_Comm inter;
    int parents;
    MPI_Comm_remote_size(parent, &parents);
    if (rank == 0)
        OK(MPI_Lookup_name(service_of("parents"), MPI_INFO_NULL, name));
    OK(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    use(inter, parents);
    OK(MPI_Comm_disconnect(&inter));
    OK(MPI_Comm_disconnect(&parent));
}

/* Ranks 0 and 1 join over a socket. Data passes through the socket before and after MPI_Comm_join. */
static void check_join(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int number = getpid(), fd;
    char byte = 'a';
    if (rank > 1)
        return;
    if (rank == 0)
        MPI_Send(&number, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    else
        MPI_Recv(&number, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "port_basic-%d", number);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (rank == 0) {
        int listener = fd;
        SAME(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
        SAME(listen(listener, 1), 0);
        MPI_Send(&number, 0, MPI_INT, 1, 5, MPI_COMM_WORLD);
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else {
        MPI_Recv(&number, 0, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        SAME(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    }
    CHECK(fd >= 0);
    MPI_Comm inter = MPI_COMM_NULL;
    for (int round = 0; round < 3; round++) {
        OK(MPI_Comm_join(fd, &inter));
        CHECK(inter != MPI_COMM_NULL);
        if (inter != MPI_COMM_NULL) {
            use(inter, 1);
            OK(MPI_Comm_disconnect(&inter));
        }
        SAME(write(fd, &byte, 1), 1);
        SAME(read(fd, &byte, 1), 1);
    }
    close(fd);
    CLASS(MPI_Comm_join(fd, &inter), MPI_ERR_ARG);
    CLASS(MPI_Comm_join(-1, &inter), MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    program = argv[0];
    start(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (parent != MPI_COMM_NULL) {
        be_child(parent);
        return finish();
    }
    check_halves();
    check_callers();
    check_names();
    check_refused();
    check_timeout();
    check_join();
    check_child();
    return finish();
}
