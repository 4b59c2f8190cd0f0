/* Starts a program for which the kernel refuses some system calls, as the profile of a container does.
 *
 * usage: refuse ERRNO [--but] NUMBER... -- PROGRAM [WORD...]
 *
 * The calls with these numbers fail with the error ERRNO; with --but all others do. The filter is a classic BPF program
 * (linux/seccomp.h); children inherit it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 4000 /* BPF_MAXINSNS is 4096 */

int main(int argc, char **argv)
{
    struct sock_filter code[MOST + 4];
    unsigned short n = 0;
    int at = 2, but = 0;
    if (argc < 4)
        return fprintf(stderr, "usage: refuse ERRNO [--but] NUMBER... -- PROGRAM [WORD...]\n"), 125;
    unsigned refusal = SECCOMP_RET_ERRNO | ((unsigned)atoi(argv[1]) & SECCOMP_RET_DATA);
    if (strcmp(argv[at], "--but") == 0)
        but = 1, at++;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    /* A listed call skips one instruction less, and gets the return value right after the comparison. */
    for (; at < argc && strcmp(argv[at], "--") != 0 && n < MOST; at++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(argv[at]), 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, but ? SECCOMP_RET_ALLOW : refusal);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, but ? refusal : SECCOMP_RET_ALLOW);
    if (at + 1 >= argc || strcmp(argv[at], "--") != 0)
        return fprintf(stderr, "refuse: no program\n"), 125;
    struct sock_fprog program = {n, code};
    /* Without privileges, a filter requires a process that cannot gain any. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
        perror("refuse: seccomp");
        return 125;
    }
    execvp(argv[at + 1], argv + at + 1);
    perror(argv[at + 1]);
    return 126;
}
