//go:build linux

package containerd

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/greylag/greylag/internal/runtime"
)

// BenchmarkTrue runs `true` as uid 1000 on the host's file system, 8 at a time: start, wait,
// remove. It reports tasks/s.
func BenchmarkTrue(b *testing.B) {
	for _, with := range []struct{ program, shim string }{
		{"runc", ""}, {"runc", shared.shim}, {"crun", ""}, {"crun", shared.shim},
	} {
		b.Run(with.program+" and "+filepath.Base(cmp.Or(with.shim, ownShim)), func(b *testing.B) {
			r := newRuntime(b, func(c *Config) { c.OCIRuntime, c.Shim = with.program, with.shim })
			var next atomic.Uint64
			b.ResetTimer()
			churn(b, r, 8, b.N, &next)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// churn runs n tasks from start to removal, atOnce at a time.
func churn(tb testing.TB, r *Runtime, atOnce, n int, next *atomic.Uint64) {
	tb.Helper()
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for {
				id := next.Add(1)
				if id > uint64(n) {
					return
				}
				if err := wholeLife(context.Background(), r, id); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func wholeLife(ctx context.Context, r *Runtime, id uint64) error {
	spec := runtime.Spec{
		ID: runtime.TaskID{Job: id, Attempt: 1}, Owner: runtime.Owner{UID: 1000, GID: 1000},
		Args: []string{"/bin/true"}, WorkDir: "/", PrivateTmp: true, CPUs: 1, Memory: 256 << 20, PidsLimit: 64,
	}
	if err := r.Start(ctx, spec); err != nil {
		return err
	}
	exit, err := r.Wait(ctx, spec.ID)
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.Lost || exit.LaunchError != "" {
		return &os.PathError{Op: "task", Path: exit.LaunchError, Err: os.ErrInvalid}
	}
	return r.Remove(ctx, spec.ID)
}
