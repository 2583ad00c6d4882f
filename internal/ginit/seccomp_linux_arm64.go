package ginit

// instructionSets of linux/arm64, with the calls that containerd's default
// seccomp profile (contrib/seccomp of v2.4.2) does not allow a container
// without capabilities; the AUDIT_ARCH numbers are linux/audit.h's, those of
// calls golang.org/x/sys v0.49.0's. See seccomp.go for what is left out.
func instructionSets() []instructionSet {
	return []instructionSet{
		{
			audit: 0xC00000B7, last: 471,
			clone: 220, clone3: 435, personality: 92, socket: 198,
			denied: []uint32{
				18,  // lookup_dcookie
				39,  // umount2
				40,  // mount
				41,  // pivot_root
				42,  // nfsservctl
				58,  // vhangup
				60,  // quotactl
				89,  // acct
				97,  // unshare
				104, // kexec_load
				105, // init_module
				106, // delete_module
				112, // clock_settime
				116, // syslog
				142, // reboot
				161, // sethostname
				162, // setdomainname
				170, // settimeofday
				217, // add_key
				218, // request_key
				219, // keyctl
				224, // swapon
				225, // swapoff
				241, // perf_event_open
				262, // fanotify_init
				265, // open_by_handle_at
				268, // setns
				272, // kcmp
				273, // finit_module
				280, // bpf
				282, // userfaultfd
				294, // kexec_file_load
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
