/* Messages of given sizes in every way that serves them: from and into private memory and memory that MPI gives, blocking
 * and not, to another rank and to oneself. Whatever settings the job has, the data must be right.
 *   selection [deny=ERRNO] SIZE...     deny: the kernel refuses to copy between processes, from before MPI_Init
 * test: only=build */
#include "check.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void deny(int code)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("prctl");
        exit(3);
    }
}

static unsigned turn;

/* Rank 0 sends, the last rank receives and answers (both may be the same one). */
static void exchange(size_t bytes, int kinds, int how)
{
    unsigned char *from, *to;
    if (kinds & 1)
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &from);
    else
        from = allocate(bytes);
    if (kinds & 2)
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &to);
    else
        to = allocate(bytes);
    int last = ranks - 1, n = (int)bytes;
    MPI_Request requests[2];
    MPI_Status status;
    for (int way = 0; way < 2; way++) {
        int source = way ? last : 0, target = way ? 0 : last;
        turn++;
        fill(from, bytes, turn);
        memset(to, 0xee, bytes);
        if (source == target || how == 1) {
            int count = 0;
            if (rank == target)
                OK(MPI_Irecv(to, n, MPI_BYTE, source, 5, MPI_COMM_WORLD, &requests[count++]));
            if (rank == source)
                OK(MPI_Isend(from, n, MPI_BYTE, target, 5, MPI_COMM_WORLD, &requests[count++]));
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        } else if (rank == source) {
            OK(how == 2 ? MPI_Ssend(from, n, MPI_BYTE, target, 5, MPI_COMM_WORLD)
                        : MPI_Send(from, n, MPI_BYTE, target, 5, MPI_COMM_WORLD));
        } else if (rank == target) {
            OK(MPI_Recv(to, n, MPI_BYTE, source, 5, MPI_COMM_WORLD, &status));
            STATUS(status, source, 5, n);
        }
        if (rank == target)
            HOLDS(to, bytes, turn);
    }
    if (kinds & 1)
        MPI_Free_mem(from);
    else
        free(from);
    if (kinds & 2)
        MPI_Free_mem(to);
    else
        free(to);
}

int main(int argc, char **argv)
{
    int first = 1;
    if (argc > 1 && !strncmp(argv[1], "deny=", 5)) {
        deny(atoi(argv[1] + 5));
        first = 2;
    }
    start(&argc, &argv);
    for (int i = first; i < argc; i++)
        for (int kinds = 0; kinds < 4; kinds++)
            for (int how = 0; how < 3; how++)
                exchange((size_t)atol(argv[i]), kinds, how);
    meet();
    return finish();
}
