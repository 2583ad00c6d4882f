package ginit

// instructionSets returns those of linux/arm64, with the calls that containerd's default seccomp
// profile (contrib/seccomp of v2.4.2) refuses to a container without capabilities. The AUDIT_ARCH
// numbers are from linux/audit.h, those of calls from golang.org/x/sys v0.49.0. See seccomp.go for
// the exceptions.
func instructionSets() []instructionSet {
	return []instructionSet{
		{
			audit: 0xC00000B7, last: 471,
			clone: 220, clone3: 435, ioctl: 29, personality: 92, socket: 198,
			denied: []uint32{
				18, 39, 40, 41, 42, // lookup_dcookie umount2 mount pivot_root nfsservctl
				58, 60, 89, 97, 104, // vhangup quotactl acct unshare kexec_load
				105, 106, 112, 116, 142, // init_module delete_module clock_settime syslog reboot
				161, 162, 170, 217, 218, // sethostname setdomainname settimeofday add_key request_key
				219, 224, 225, 241, 262, // keyctl swapon swapoff perf_event_open fanotify_init
				265, 268, 272, 273, 280, // open_by_handle_at setns kcmp finit_module bpf
				282, 294, 425, 426, 427, // userfaultfd kexec_file_load io_uring_setup io_uring_enter io_uring_register
				428, 429, 430, 431, 432, // open_tree move_mount fsopen fsconfig fsmount
				433, 440, 442, 443, 467, // fspick process_madvise mount_setattr quotactl_fd open_tree_attr
				468, 469, 470, 471, // file_getattr file_setattr listns rseq_slice_yield
			},
		},
	}
}
