! Processes that a program starts, with arrays of strings; ports and names of services.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 needs=2
#include "methods.h"
#include "check.h"
program fortran_spawn
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr
  character(len=500) :: program_
  COMM :: parent

  call start()
  call get_command_argument(0, program_)
  call MPI_Comm_get_parent(parent, ierr)
  if (parent /= MPI_COMM_NULL) then
    call child()
  else
    call one_command()
    call no_arguments()
    call several_commands()
    call failed()
    call ports()
  end if
  call finish()
contains
#include "check.inc"

  ! Sends the number of its command and all arguments, as one text, to the parents.
  subroutine child()
    integer :: i, number
    character(len=100) :: text
    character(len=30) :: one
    text = ''
    do i = 1, command_argument_count()
      call get_command_argument(i, one)
      text = trim(text) // '<' // trim(one) // '>'
    end do
    call get_number(number)
    call MPI_Gather(number, 1, MPI_INTEGER, number, 1, MPI_INTEGER, 0, parent, ierr)
    call MPI_Gather(text, 100, MPI_CHARACTER, text, 100, MPI_CHARACTER, 0, parent, ierr)
    call MPI_Comm_disconnect(parent, ierr)
    CHECK(parent == MPI_COMM_NULL)
  end subroutine child

  ! Number of the command that started this process.
  subroutine get_number(number)
    integer, intent(out) :: number
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, value, flag, ierr)
    CHECK(flag)
    number = int(value)
  end subroutine get_number

  ! Checks the number of children, and what each one sends.
  subroutine expect(children, numbers, texts)
    COMM, intent(inout) :: children
    integer, intent(in) :: numbers(:)
    character(len=*), intent(in) :: texts(:)
    integer :: count, i, root, received(size(numbers))
    character(len=100) :: text(size(texts))
    call MPI_Comm_remote_size(children, count, ierr)
    SAME(count, size(numbers))
    root = merge(MPI_ROOT, MPI_PROC_NULL, rank == 0)
    call MPI_Gather(received, 1, MPI_INTEGER, received, 1, MPI_INTEGER, root, children, ierr)
    call MPI_Gather(text, 100, MPI_CHARACTER, text, 100, MPI_CHARACTER, root, children, ierr)
    if (rank == 0) then
      do i = 1, count
        SAME(received(i), numbers(i))
        call same_text(text(i), texts(i), __LINE__)
      end do
    end if
    call MPI_Comm_disconnect(children, ierr)
  end subroutine expect

  subroutine one_command()
    character(len=10) :: arguments(4)
    integer :: codes(2)
    COMM :: children
    ! Blanks at both ends are dropped, those within stay. A blank one is the last.
    arguments(1) = 'first'
    arguments(2) = '  two  w'
    arguments(3) = 'exactly10c'
    arguments(4) = ' '
    codes = -1
    if (rank == 0) then
      call MPI_Comm_spawn(program_, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, codes, ierr)
    else
      ! These arguments are for the root only.
      call MPI_Comm_spawn('no such program', MPI_ARGV_NULL, -5, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &
          children, codes, ierr)
    end if
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(codes == MPI_SUCCESS))
    call expect(children, [0, 0], ['<first><two  w><exactly10c>', '<first><two  w><exactly10c>'])
  end subroutine one_command

  subroutine no_arguments()
    COMM :: children
    call MPI_Comm_spawn(program_, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 1, MPI_COMM_WORLD, children, &
        MPI_ERRCODES_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call expect(children, [0], [' '])
  end subroutine no_arguments

  ! The arguments of command i are row i.
  subroutine several_commands()
    character(len=500) :: commands(2)
    character(len=6) :: arguments(2, 3)
    integer :: codes(3), most(2)
    INFO :: infos(2)
    COMM :: children
    commands = program_
    arguments(1, :) = ['a     ', 'b c   ', '      ']
    arguments(2, :) = ['d     ', '      ', 'unread']
    most = [1, 2]
    infos = MPI_INFO_NULL
    codes = -1
    call MPI_Comm_spawn_multiple(2, commands, arguments, most, infos, 0, MPI_COMM_WORLD, children, &
        codes, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(codes == MPI_SUCCESS))
    call expect(children, [0, 1, 1], ['<a><b c>', '<d>     ', '<d>     '])
    call MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, [1, 1], infos, 0, MPI_COMM_WORLD, &
        children, MPI_ERRCODES_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call expect(children, [0, 1], [' ', ' '])
  end subroutine several_commands

  subroutine failed()
    integer :: codes(1)
    COMM :: children
    codes = MPI_SUCCESS
    call MPI_Comm_spawn('/nonexistent/program', MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &
        children, codes, ierr)
    CLASS(MPI_ERR_SPAWN)
    CHECK(codes(1) /= MPI_SUCCESS)
  end subroutine failed

  subroutine ports()
    character(len=MPI_MAX_PORT_NAME) :: port, found
    character(len=100) :: service
    integer :: value, length
    COMM :: peer
    call get_environment_variable('MPI_TEST_MARK', service, length)
    service = 'fortran spawn ' // trim(service)
    if (rank == 0) then
      port = repeat('x', len(port))
      call MPI_Open_port(MPI_INFO_NULL, port, ierr)
      SAME(ierr, MPI_SUCCESS)
      CHECK(len_trim(port) > 0 .and. len_trim(port) < len(port))
      call MPI_Publish_name(service, MPI_INFO_NULL, port, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      call MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, peer, ierr)
      call MPI_Recv(value, 1, MPI_INTEGER, 0, 1, peer, MPI_STATUS_IGNORE, ierr)
      SAME(value, 4711)
      call MPI_Unpublish_name(service, MPI_INFO_NULL, port, ierr)
      call MPI_Close_port(port, ierr)
    else
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      found = ' '
      call MPI_Lookup_name(service, MPI_INFO_NULL, found, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Comm_connect(found, MPI_INFO_NULL, 0, MPI_COMM_SELF, peer, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Send(4711, 1, MPI_INTEGER, 0, 1, peer, ierr)
    end if
    call MPI_Comm_disconnect(peer, ierr)
  end subroutine ports
end program fortran_spawn
