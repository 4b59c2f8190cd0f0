/* Long messages while the kernel refuses to copy between processes: from the start at one side or both, or from a
 * moment in the middle of the traffic. All messages must arrive by other protocols.
 * test: ranks=2,3,4 timeout=120 */
#include "../check.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Lets process_vm_readv and process_vm_writev of this process fail from now on, as they do where they are not
 * permitted. */
static void deny(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail(__LINE__, "no filter of system calls can be set");
}

static void paint(unsigned char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = byte_of(seed, i);
}

/* Each rank sends to the next and receives from the previous one, in both orders of posting. */
static void pass_around(size_t bytes, int rounds)
{
    unsigned char *out = allocate(bytes), *in = allocate(bytes);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int round = 0; round < rounds; round++) {
        MPI_Request request;
        unsigned mine = (unsigned)(round * 64 + rank), theirs = (unsigned)(round * 64 + before);
        paint(out, bytes, mine);
        memset(in, 0, bytes);
        if (round % 2) {
            OK(MPI_Irecv(in, (int)bytes, MPI_BYTE, before, round, MPI_COMM_WORLD, &request));
            OK(MPI_Send(out, (int)bytes, MPI_BYTE, next, round, MPI_COMM_WORLD));
        } else {
            OK(MPI_Isend(out, (int)bytes, MPI_BYTE, next, round, MPI_COMM_WORLD, &request));
            OK(MPI_Recv(in, (int)bytes, MPI_BYTE, before, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < bytes; i++)
            if (in[i] != byte_of(theirs, i)) {
                fail(__LINE__, "round %d, byte %zu of %zu", round, i, bytes);
                break;
            }
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    pass_around(200000, 4);
    pass_around(3000001, 4);
    if (rank == 1)
        deny();
    pass_around(200000, 4);
    pass_around(3000001, 4);
    if (rank == 0)
        deny();
    pass_around(3000001, 4);
    pass_around(40000, 4);
    return finish();
}
