! Passes each rank's number once around the ring and adds them up, by the module mpi_f08.
program ring
  use mpi_f08
  implicit none
  type(MPI_Status) :: status
  integer :: rank, ranks, total, step, passing(1)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  total = rank
  passing = rank
  do step = 1, ranks - 1
    call MPI_Sendrecv_replace(passing, 1, MPI_INTEGER, mod(rank + 1, ranks), 0, &
        mod(rank + ranks - 1, ranks), 0, MPI_COMM_WORLD, status)
    total = total + passing(1)
  end do
  if (rank == 0) print '(a,i0,a,i0)', 'mpi_f08: ', ranks, ' ranks, sum ', total
  call MPI_Finalize()
  if (total /= ranks * (ranks - 1) / 2) stop 1
end program
