package ginit

// instructionSets of linux/amd64, with the calls that containerd's default
// seccomp profile (contrib/seccomp of v2.4.2) does not allow a container
// without capabilities; the AUDIT_ARCH numbers are linux/audit.h's, those of
// calls golang.org/x/sys v0.49.0's. See seccomp.go for what is left out.
func instructionSets() []instructionSet {
	return []instructionSet{
		{
			audit: 0xC000003E, last: 471,
			clone: 56, clone3: 435, personality: 135, socket: 41,
			denied: []uint32{
				103, // syslog
				134, // uselib
				136, // ustat
				139, // sysfs
				153, // vhangup
				155, // pivot_root
				156, // _sysctl
				163, // acct
				164, // settimeofday
				165, // mount
				166, // umount2
				167, // swapon
				168, // swapoff
				169, // reboot
				170, // sethostname
				171, // setdomainname
				172, // iopl
				173, // ioperm
				174, // create_module
				175, // init_module
				176, // delete_module
				177, // get_kernel_syms
				178, // query_module
				179, // quotactl
				180, // nfsservctl
				181, // getpmsg
				182, // putpmsg
				183, // afs_syscall
				184, // tuxcall
				185, // security
				212, // lookup_dcookie
				227, // clock_settime
				236, // vserver
				246, // kexec_load
				248, // add_key
				249, // request_key
				250, // keyctl
				272, // unshare
				298, // perf_event_open
				300, // fanotify_init
				304, // open_by_handle_at
				308, // setns
				312, // kcmp
				313, // finit_module
				320, // kexec_file_load
				321, // bpf
				323, // userfaultfd
				336, // uprobe
				425, // io_uring_setup
				426, // io_uring_enter
				427, // io_uring_register
				428, // open_tree
				429, // move_mount
				430, // fsopen
				431, // fsconfig
				432, // fsmount
				433, // fspick
				440, // process_madvise
				442, // mount_setattr
				443, // quotactl_fd
				467, // open_tree_attr
				468, // file_getattr
				469, // file_setattr
				470, // listns
				471, // rseq_slice_yield
			},
		},
		{
			audit: 0x40000003, last: 471,
			clone: 120, clone3: 435, personality: 136, socket: 359,
			denied: []uint32{
				17,  // break
				18,  // oldstat
				21,  // mount
				22,  // umount
				25,  // stime
				28,  // oldfstat
				31,  // stty
				32,  // gtty
				34,  // nice
				35,  // ftime
				44,  // prof
				48,  // signal
				51,  // acct
				52,  // umount2
				53,  // lock
				56,  // mpx
				58,  // ulimit
				59,  // oldolduname
				62,  // ustat
				67,  // sigaction
				68,  // sgetmask
				69,  // ssetmask
				72,  // sigsuspend
				73,  // sigpending
				74,  // sethostname
				79,  // settimeofday
				84,  // oldlstat
				86,  // uselib
				87,  // swapon
				88,  // reboot
				89,  // readdir
				98,  // profil
				101, // ioperm
				103, // syslog
				109, // olduname
				110, // iopl
				111, // vhangup
				112, // idle
				113, // vm86old
				115, // swapoff
				121, // setdomainname
				127, // create_module
				128, // init_module
				129, // delete_module
				130, // get_kernel_syms
				131, // quotactl
				134, // bdflush
				135, // sysfs
				137, // afs_syscall
				149, // _sysctl
				166, // vm86
				167, // query_module
				169, // nfsservctl
				188, // getpmsg
				189, // putpmsg
				217, // pivot_root
				253, // lookup_dcookie
				264, // clock_settime
				273, // vserver
				283, // kexec_load
				286, // add_key
				287, // request_key
				288, // keyctl
				310, // unshare
				336, // perf_event_open
				338, // fanotify_init
				342, // open_by_handle_at
				346, // setns
				349, // kcmp
				350, // finit_module
				357, // bpf
				374, // userfaultfd
				404, // clock_settime64
				425, // io_uring_setup
				426, // io_uring_enter
				427, // io_uring_register
				428, // open_tree
				429, // move_mount
				430, // fsopen
				431, // fsconfig
				432, // fsmount
				433, // fspick
				440, // process_madvise
				442, // mount_setattr
				443, // quotactl_fd
				467, // open_tree_attr
				468, // file_getattr
				469, // file_setattr
				470, // listns
				471, // rseq_slice_yield
			},
		},
	}
}
