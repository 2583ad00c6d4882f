//go:build !bootfault

package agent

// bootFile returns the file with the identity of this boot of the kernel.
func bootFile() string { return "/proc/sys/kernel/random/boot_id" }
