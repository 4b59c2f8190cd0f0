! Solves a diffusion problem on a square grid with MUMPS, as unsymmetric, positive definite and symmetric matrix. Each
! rank has a part of the matrix and gets a part of the solution, which it compares with the known one.
program laplacian
    use mpi_f08
    implicit none
    include 'dmumps_struc.h'
    integer, parameter :: m = 120, n = m * m
    integer :: rank, ranks, symmetry
    real(8) :: largest
    integer :: solved

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    do symmetry = 0, 2
        call solve(symmetry, largest, solved)
        if (rank == 0) print '(a, i2, a, i6, a, es9.2)', &
            'symmetry', symmetry, ': unknowns', solved, ', largest error', largest
        if (solved /= n .or. .not. largest < 1d-8) call MPI_Abort(MPI_COMM_WORLD, 1)
    end do
    if (rank == 0) print '(a)', 'all solved'
    call MPI_Finalize()

contains

    ! Value of the solution at an unknown.
    real(8) function expected(i)
        integer, intent(in) :: i
        expected = 1 + mod(i, 97) / 97d0
    end function

    ! Entry of the matrix; unsymmetric if `symmetry` is 0.
    real(8) function entry_of(i, j, symmetry)
        integer, intent(in) :: i, j, symmetry
        entry_of = -1
        if (i == j) entry_of = 4.5d0
        if (symmetry == 0 .and. i > j) entry_of = -0.75d0
    end function

    ! Unknowns that unknown `i` depends on.
    subroutine find_neighbors(i, near, number)
        integer, intent(in) :: i
        integer, intent(out) :: near(5), number
        logical :: is_inside(5)
        integer :: x
        x = mod(i - 1, m)
        is_inside = (/ .true., x > 0, x < m - 1, i > m, i <= n - m /)
        number = count(is_inside)
        near(:number) = pack((/ i, i - 1, i + 1, i - m, i + m /), is_inside)
    end subroutine

    subroutine solve(symmetry, largest, solved)
        integer, intent(in) :: symmetry
        real(8), intent(out) :: largest
        integer, intent(out) :: solved
        type(DMUMPS_STRUC) :: problem
        integer :: i, k, near(5), number, entries
        real(8) :: mine

        problem%COMM = MPI_COMM_WORLD%MPI_VAL
        problem%SYM = symmetry
        problem%PAR = 1
        call run(problem, -1)
        problem%ICNTL(3:4) = (/ 0, 1 /)
        problem%ICNTL(7) = 4    ! ordering: PORD
        problem%ICNTL(13) = 1   ! last front on one rank, without ScaLAPACK
        problem%ICNTL(18) = 3   ! distributed matrix
        problem%ICNTL(21) = 1   ! distributed solution
        problem%N = n

        allocate(problem%IRN_loc(5 * n), problem%JCN_loc(5 * n), problem%A_loc(5 * n))
        allocate(problem%RHS(n))
        entries = 0
        do i = 1, n
            call find_neighbors(i, near, number)
            problem%RHS(i) = 0
            do k = 1, number
                problem%RHS(i) = problem%RHS(i) + entry_of(i, near(k), symmetry) * expected(near(k))
                if (mod(i, ranks) /= rank .or. symmetry > 0 .and. near(k) > i) cycle
                entries = entries + 1
                problem%IRN_loc(entries) = i
                problem%JCN_loc(entries) = near(k)
                problem%A_loc(entries) = entry_of(i, near(k), symmetry)
            end do
        end do
        problem%NNZ_loc = entries
        call run(problem, 4)

        problem%LSOL_loc = problem%INFO(23)
        allocate(problem%SOL_loc(max(1, problem%LSOL_loc)))
        allocate(problem%ISOL_loc(max(1, problem%LSOL_loc)))
        call run(problem, 3)
        mine = 0
        do k = 1, problem%INFO(23)
            mine = max(mine, abs(problem%SOL_loc(k) - expected(problem%ISOL_loc(k))))
        end do
        call MPI_Allreduce(mine, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
        call MPI_Allreduce(problem%INFO(23), solved, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
        deallocate(problem%IRN_loc, problem%JCN_loc, problem%A_loc)
        deallocate(problem%RHS, problem%SOL_loc, problem%ISOL_loc)
        call run(problem, -2)
    end subroutine

    subroutine run(problem, job)
        type(DMUMPS_STRUC), intent(inout) :: problem
        integer, intent(in) :: job
        problem%JOB = job
        call DMUMPS(problem)
        if (problem%INFOG(1) < 0) then
            print *, 'MUMPS, job', job, ': error', problem%INFOG(1:2)
            call MPI_Abort(MPI_COMM_WORLD, 1)
        end if
    end subroutine
end program
