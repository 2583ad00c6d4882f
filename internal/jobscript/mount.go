package jobscript

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// ignoredMountFlags are pyxis mount flags that are accepted without effect.
var ignoredMountFlags = []string{"rw", "bind", "rbind", "private", "rprivate", "slave", "rslave", "x-create=auto"}

// mountOption names the option that asks for mounts, for a message.
func (r *resolver) mountOption() string {
	if slices.ContainsFunc(r.asks, func(a ask) bool { return a.row.Long == "mount" }) {
		return "--mount"
	}
	return "--container-mounts"
}

// addMount adds a mount, SOURCE[:TARGET[:FLAGS]]. As in pyxis, "+" separates flags.
func (o *Options) addMount(word string) error {
	const advice = "write SOURCE:TARGET or SOURCE:TARGET:ro, for example --mount /data/sets:/data:ro"
	parts := strings.Split(word, ":")
	if len(parts) > 3 || parts[0] == "" {
		return advise(fmt.Sprintf("invalid mount %q", word), advice)
	}
	m := cluster.Mount{Source: parts[0], Target: parts[0]}
	if m.Source == "tmpfs" || m.Source == "umount" {
		return advise(fmt.Sprintf("%q: %s mounts are not supported", word, m.Source), "a job has its own empty /tmp, and /dev/shm in memory")
	}
	if len(parts) > 1 {
		m.Target = parts[1]
	}
	if len(parts) > 2 {
		for flag := range strings.SplitSeq(parts[2], "+") {
			switch {
			case flag == "ro":
				m.ReadOnly = true
			case !slices.Contains(ignoredMountFlags, flag):
				return advise(fmt.Sprintf("%q: unknown flag %q", word, flag), advice)
			}
		}
	}
	if !path.IsAbs(m.Target) {
		return advise(fmt.Sprintf("%q: the target is not an absolute path", word), advice)
	}
	absolute := m
	absolute.Source = path.Join("/", m.Source)
	if err := absolute.Check(); err != nil {
		return advise(err.Error(), advice)
	}
	o.Mounts = append(o.Mounts, m)
	return nil
}
