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

// labelUsed is the label of an image in containerd with the time of its last use.
const labelUsed = "greylag/used"

const (
	// usedSpacing is the maximum age of the stored time.
	usedSpacing = time.Hour
	// restTime is how long an image is kept after its last use, whatever the limits: the task that
	// needs it may not have started.
	restTime = time.Hour
)

// imageUses tracks when images were last used. Its lock orders use and deletion: a user of an image
// records its use before it checks whether the image exists.
type imageUses struct {
	mu    sync.Mutex
	at    map[string]time.Time
	saved map[string]time.Time
}

func newImageUses() *imageUses {
	return &imageUses{at: map[string]time.Time{}, saved: map[string]time.Time{}}
}

// want records that an image is used now.
func (u *imageUses) want(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[name] = time.Now()
}

// stale reports whether the time in containerd must be updated, and counts as the update.
func (u *imageUses) stale(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.saved[name]) < usedSpacing {
		return false
	}
	u.saved[name] = time.Now()
	return true
}

// remember stores the time of use in containerd. If that fails, the image may be deleted early and
// pulled again.
func (r *Runtime) remember(ctx context.Context, name string) {
	if !r.uses.stale(name) {
		return
	}
	image := images.Image{Name: name, Labels: map[string]string{labelUsed: time.Now().UTC().Format(time.RFC3339)}}
	_, _ = r.client.ImageService().Update(ctx, image, "labels."+labelUsed)
}

// stored is one image with its size.
type stored struct {
	name  string
	used  time.Time
	inUse bool
	parts map[string]int64 // contents and unpacked layers, which other images may share
}

// Collect implements runtime.Collector. It considers only images that Fetch returned; other images
// of the namespace have other owners.
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

// deleteImage deletes an image and the parts that no other image has, unless it was used meanwhile.
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

// stored lists the images that Fetch returned. O(images × layers) calls.
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

// lastUse returns the stored time of use, or the creation time of the image.
func lastUse(image images.Image) time.Time {
	used, err := time.Parse(time.RFC3339, image.Labels[labelUsed])
	if err != nil {
		return image.CreatedAt
	}
	return used
}

// parts returns the sizes of an image's parts. Unreadable parts count as 0: such an image is
// incomplete and is deleted by age.
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
