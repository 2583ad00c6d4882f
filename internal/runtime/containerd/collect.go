//go:build linux

package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"

	"github.com/greylag/greylag/internal/runtime"
)

var _ runtime.Collector = (*Runtime)(nil)

// labelUsed is when an image was last wanted, as containerd remembers it.
const labelUsed = "greylag/used"

const (
	// usedSpacing is how old what containerd remembers may be.
	usedSpacing = time.Hour
	// restTime is for how long an image is kept after it was wanted, whatever the
	// bounds: a task that was given it may not have started yet.
	restTime = time.Hour
)

// imageUses knows when images were last wanted. Its lock orders wanting an image and
// deleting it: who wants one has said so before looking whether it is here.
type imageUses struct {
	mu    sync.Mutex
	at    map[string]time.Time
	saved map[string]time.Time
}

func newImageUses() *imageUses {
	return &imageUses{at: map[string]time.Time{}, saved: map[string]time.Time{}}
}

// want notes that an image is wanted now.
func (u *imageUses) want(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[name] = time.Now()
}

// stale reports whether containerd should be told when the image was last wanted, and
// takes it for told.
func (u *imageUses) stale(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.saved[name]) < usedSpacing {
		return false
	}
	u.saved[name] = time.Now()
	return true
}

// remember writes into containerd when an image was wanted. Where that fails, an image
// may go sooner than it should, and is pulled again.
func (r *Runtime) remember(ctx context.Context, name string) {
	if !r.uses.stale(name) {
		return
	}
	image := images.Image{Name: name, Labels: map[string]string{labelUsed: time.Now().UTC().Format(time.RFC3339)}}
	_, _ = r.client.ImageService().Update(ctx, image, "labels."+labelUsed)
}

// stored is one image, with what it takes.
type stored struct {
	name  string
	used  time.Time
	inUse bool
	parts map[string]int64 // its contents and unpacked layers, which others may share
}

// Collect implements runtime.Collector. Only images that Fetch has named are looked
// at: others in the namespace are somebody else's.
func (r *Runtime) Collect(ctx context.Context, keep runtime.Keep) (runtime.Collected, error) {
	ctx = r.scope(ctx)
	all, err := r.stored(ctx)
	if err != nil {
		return runtime.Collected{}, fmt.Errorf("list images: %w", unavailable(err))
	}
	var did runtime.Collected
	shared := map[string]int{}
	for _, s := range all {
		for part, size := range s.parts {
			if shared[part]++; shared[part] == 1 {
				did.KeptBytes += size
			}
		}
	}
	did.Kept = len(all)
	slices.SortFunc(all, func(a, b stored) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	var failed error
	for _, s := range all {
		unused := time.Since(s.used)
		old := keep.Age > 0 && unused >= keep.Age
		over := keep.Bytes > 0 && did.KeptBytes > keep.Bytes
		if s.inUse || unused < restTime || !old && !over {
			continue
		}
		switch gone, err := r.deleteImage(ctx, s); {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("delete image %s: %w", s.name, unavailable(err)))
			continue
		case !gone:
			continue
		}
		did.Deleted, did.Kept = append(did.Deleted, s.name), did.Kept-1
		for part, size := range s.parts {
			if shared[part]--; shared[part] == 0 {
				did.KeptBytes, did.DeletedBytes = did.KeptBytes-size, did.DeletedBytes+size
			}
		}
	}
	return did, failed
}

// deleteImage deletes an image, and what no other has of it, unless it is wanted since.
func (r *Runtime) deleteImage(ctx context.Context, s stored) (gone bool, err error) {
	r.uses.mu.Lock()
	defer r.uses.mu.Unlock()
	if time.Since(r.uses.at[s.name]) < restTime {
		return false, nil
	}
	r.images.forget(s.name)
	delete(r.uses.at, s.name)
	delete(r.uses.saved, s.name)
	err = r.client.ImageService().Delete(ctx, s.name, images.SynchronousDelete())
	return true, ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// stored lists the images that Fetch has named. O(images × layers) calls.
func (r *Runtime) stored(ctx context.Context) ([]stored, error) {
	list, err := r.client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	running, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	inUse := map[string]bool{}
	for _, c := range running {
		inUse[c.Image] = true
	}
	var all []stored
	for _, image := range list {
		if strings.HasSuffix(image.Name, "@"+image.Target.Digest.String()) {
			all = append(all, stored{name: image.Name, used: lastUse(image), inUse: inUse[image.Name], parts: r.parts(ctx, image)})
		}
	}
	return all, nil
}

// lastUse is what containerd remembers, or when the image came.
func lastUse(image images.Image) time.Time {
	used, err := time.Parse(time.RFC3339, image.Labels[labelUsed])
	if err != nil {
		return image.CreatedAt
	}
	return used
}

// parts are what an image takes. What of it cannot be read counts nothing: it is not
// whole, and goes with its age.
func (r *Runtime) parts(ctx context.Context, image images.Image) map[string]int64 {
	parts := map[string]int64{image.Target.Digest.String(): image.Target.Size}
	manifest, err := images.Manifest(ctx, r.client.ContentStore(), image.Target, platforms.Default())
	if err != nil {
		return parts
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		parts[d.Digest.String()] = d.Size
	}
	layers, err := client.NewImage(r.client, image).RootFS(ctx)
	if err != nil {
		return parts
	}
	snapshotter := r.client.SnapshotService(r.config.Snapshotter)
	for _, chain := range identity.ChainIDs(slices.Clone(layers)) {
		if usage, err := snapshotter.Usage(ctx, chain.String()); err == nil {
			parts["unpacked "+chain.String()] = usage.Size
		}
	}
	return parts
}
