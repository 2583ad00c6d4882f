package audit

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// Leaks counts what tasks need on a machine and must not outlive them.
type Leaks struct {
	Mounts, Groups, Shims int
}

// CountLeaks counts the current mounts and shims of this cluster, and the control groups of
// Greylag's tasks on this machine.
func CountLeaks(c *cluster.Cluster) (Leaks, error) {
	var l Leaks
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return l, err
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if strings.Contains(lines.Text(), " "+c.Dir+"/") {
			l.Mounts++
		}
	}
	if d := c.Containerd(); d != nil {
		shims, err := d.Shims()
		if err != nil {
			return l, err
		}
		l.Shims = len(shims)
	}
	for _, node := range c.Nodes() {
		l.Groups += groupsNamed(node.Namespace)
	}
	return l, lines.Err()
}

// groupsNamed counts control groups of tasks below the group of a node.
func groupsNamed(namespace string) int {
	n := 0
	for _, pattern := range []string{"/sys/fs/cgroup/greylag", "/sys/fs/cgroup/pids/greylag", "/sys/fs/cgroup/greylag*.slice"} {
		roots, _ := filepath.Glob(pattern)
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && path != root && strings.Contains(path, namespace) && !strings.HasSuffix(strings.TrimSuffix(path, ".slice"), namespace) {
					n++
				}
				return nil
			})
		}
	}
	return n
}

// AwaitNoLeaks waits, at most two minutes, until no count is higher than before.
func AwaitNoLeaks(ctx context.Context, c *cluster.Cluster, before Leaks) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return cluster.Until(ctx, "everything of the tasks is gone", func() (bool, error) {
		now, err := CountLeaks(c)
		if err != nil {
			return false, err
		}
		if now.Mounts > before.Mounts || now.Groups > before.Groups || now.Shims > before.Shims {
			return false, fmt.Errorf("there were %+v, there are %+v", before, now)
		}
		return true, nil
	})
}
