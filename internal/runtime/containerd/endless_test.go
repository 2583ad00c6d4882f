//go:build linux

package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/runtime"
)

// TestArchiveWithoutAnEnd checks that the zeros after the end of a sparse archive are read no
// longer than the launch timeout.
func TestArchiveWithoutAnEnd(t *testing.T) {
	needContainers(t)
	r := newRuntime(t, nil)
	built := must(ociimage.Unix())(t)
	built.WorkDir = "/tmp"
	path := filepath.Join(home(t), "endless.tar")
	must(ociimage.WriteFile(path, built))(t)
	if err := os.Truncate(path, 4<<40); err != nil {
		t.Skipf("needs a file system with sparse files of 4 TiB: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.Fetch(ctx, runtime.FetchRequest{Reference: "oci-archive:" + path, Owner: runtime.Owner{UID: 1000, GID: 1000}})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fetched with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the archive is still read a minute after the launch was given up")
	}
}
