package ginit

// instructionSets returns those of linux/amd64, with the calls that containerd's default seccomp
// profile (contrib/seccomp of v2.4.2) refuses to a container without capabilities. The AUDIT_ARCH
// numbers are from linux/audit.h, those of calls from golang.org/x/sys v0.49.0. See seccomp.go for
// the exceptions.
func instructionSets() []instructionSet {
	return []instructionSet{
		{
			audit: 0xC000003E, last: 471,
			clone: 56, clone3: 435, ioctl: 16, personality: 135, socket: 41,
			denied: []uint32{
				103, 134, 136, 139, 153, // syslog uselib ustat sysfs vhangup
				155, 156, 163, 164, 165, // pivot_root _sysctl acct settimeofday mount
				166, 167, 168, 169, 170, // umount2 swapon swapoff reboot sethostname
				171, 172, 173, 174, 175, // setdomainname iopl ioperm create_module init_module
				176, 177, 178, 179, 180, // delete_module get_kernel_syms query_module quotactl nfsservctl
				181, 182, 183, 184, 185, // getpmsg putpmsg afs_syscall tuxcall security
				212, 227, 236, 246, 248, // lookup_dcookie clock_settime vserver kexec_load add_key
				249, 250, 272, 298, 300, // request_key keyctl unshare perf_event_open fanotify_init
				304, 308, 312, 313, 320, // open_by_handle_at setns kcmp finit_module kexec_file_load
				321, 323, 336, 425, 426, // bpf userfaultfd uprobe io_uring_setup io_uring_enter
				427, 428, 429, 430, 431, // io_uring_register open_tree move_mount fsopen fsconfig
				432, 433, 440, 442, 443, // fsmount fspick process_madvise mount_setattr quotactl_fd
				467, 468, 469, 470, 471, // open_tree_attr file_getattr file_setattr listns rseq_slice_yield
			},
		},
		{
			audit: 0x40000003, last: 471,
			clone: 120, clone3: 435, ioctl: 54, personality: 136, socket: 359,
			denied: []uint32{
				17, 18, 21, 22, 25, // break oldstat mount umount stime
				28, 31, 32, 34, 35, // oldfstat stty gtty nice ftime
				44, 48, 51, 52, 53, // prof signal acct umount2 lock
				56, 58, 59, 62, 67, // mpx ulimit oldolduname ustat sigaction
				68, 69, 72, 73, 74, // sgetmask ssetmask sigsuspend sigpending sethostname
				79, 84, 86, 87, 88, // settimeofday oldlstat uselib swapon reboot
				89, 98, 101, 103, 109, // readdir profil ioperm syslog olduname
				110, 111, 112, 113, 115, // iopl vhangup idle vm86old swapoff
				121, 127, 128, 129, 130, // setdomainname create_module init_module delete_module get_kernel_syms
				131, 134, 135, 137, 149, // quotactl bdflush sysfs afs_syscall _sysctl
				166, 167, 169, 188, 189, // vm86 query_module nfsservctl getpmsg putpmsg
				217, 253, 264, 273, 283, // pivot_root lookup_dcookie clock_settime vserver kexec_load
				286, 287, 288, 310, 336, // add_key request_key keyctl unshare perf_event_open
				338, 342, 346, 349, 350, // fanotify_init open_by_handle_at setns kcmp finit_module
				357, 374, 404, 425, 426, // bpf userfaultfd clock_settime64 io_uring_setup io_uring_enter
				427, 428, 429, 430, 431, // io_uring_register open_tree move_mount fsopen fsconfig
				432, 433, 440, 442, 443, // fsmount fspick process_madvise mount_setattr quotactl_fd
				467, 468, 469, 470, 471, // open_tree_attr file_getattr file_setattr listns rseq_slice_yield
			},
		},
	}
}
