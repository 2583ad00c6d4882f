//go:build linux

package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/greylag/greylag/internal/image"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
)

// diskName is the registry part of the names of images from files. Like every name that Fetch
// returns, such a name is bound to a digest that is checked at every use: an archive gains nothing
// by claiming another image's name in its annotations.
const diskName = "greylag.invalid/archive"

// Fetch implements runtime.Images.
func (r *Runtime) Fetch(ctx context.Context, request runtime.FetchRequest) (string, error) {
	ref, err := image.Parse(request.Reference)
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
	}
	ctx = r.scope(ctx)
	var name string
	if ref.Kind == image.Registry {
		name, err = r.pull(ctx, ref, request)
		err = ofRegistry(err)
	} else {
		err = userfile.As(request.Owner, func() error {
			name, err = r.load(ctx, ref)
			return err
		})
	}
	if err != nil {
		if !errors.Is(err, runtime.ErrRegistry) { // its timeouts look like those of containerd
			err = unavailable(err)
		}
		return "", fmt.Errorf("image %s: %w", request.Reference, err)
	}
	r.remember(ctx, name)
	return name, nil
}

// pull asks the registry for the current meaning of the reference, with the user's own credentials
// even if the image is present, and downloads what is missing.
func (r *Runtime) pull(ctx context.Context, ref image.Reference, request runtime.FetchRequest) (string, error) {
	known, err := r.loginsOf(ctx, request)
	if err != nil {
		return "", err
	}
	resolver := r.resolver(ctx, ref, known)
	_, target, err := resolver.Resolve(ctx, ref.Name)
	if err != nil {
		return "", err
	}
	name := pinned(ref.Name, target.Digest.String())
	r.uses.want(name)
	if present(ctx, r.client, name, r.config.Snapshotter) {
		return name, nil
	}
	_, err = r.client.Pull(ctx, name, client.WithResolver(resolver),
		client.WithPullUnpack, client.WithPullSnapshotter(r.config.Snapshotter))
	return name, err
}

// pinned replaces a tag or digest by this digest.
func pinned(name, digest string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name + "@" + digest
}

// present reports whether the image is stored and unpacked.
func present(ctx context.Context, c *client.Client, name, snapshotter string) bool {
	found, err := c.GetImage(ctx, name)
	if err != nil || !strings.HasSuffix(name, "@"+found.Target().Digest.String()) {
		return false
	}
	unpacked, err := found.IsUnpacked(ctx, snapshotter)
	return err == nil && unpacked
}

// load imports an image from disk. It runs with the identity of the user.
func (r *Runtime) load(ctx context.Context, ref image.Reference) (string, error) {
	source, err := openImage(ref)
	if err != nil {
		return "", err
	}
	defer source.Close()
	digest, err := source.Digest(ref.Select)
	if err == nil {
		if err := source.CheckHeld(digest, platforms.Default().Match); err != nil {
			return "", err
		}
	}
	r.uses.want(diskName + "@" + digest)
	if err == nil && present(ctx, r.client, diskName+"@"+digest, r.config.Snapshotter) {
		return diskName + "@" + digest, nil
	}
	if err != nil && ref.Select != "" {
		return "", err // an archive of docker save has no index.json and is loaded whole
	}
	reader, writer := io.Pipe()
	// A sparse file may take years to read.
	stop := context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) })
	defer stop()
	imported := make(chan error, 1)
	var name string
	go func() {
		var err error
		name, err = r.importTar(ctx, reader, ref.Select, digest)
		imported <- err
		_ = reader.CloseWithError(err) // WriteTar then fails; this call never does
	}()
	// In this goroutine, which has the user's identity for files.
	errWrite := source.WriteTar(writer)
	_ = writer.CloseWithError(errWrite)
	if err := <-imported; err != nil {
		return "", cmp.Or(ctx.Err(), err)
	}
	return name, nil
}

// openImage opens the file or directory of a reference of kind Archive or Layout. It runs with the
// identity of the user.
func openImage(ref image.Reference) (*image.Source, error) {
	if ref.Kind == image.Layout {
		folder, err := userfile.OpenFolder(ref.Path)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		return image.OpenLayout(userfile.Proc(folder.FD))
	}
	file, err := userfile.OpenRegular(ref.Path)
	if errors.Is(err, userfile.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", image.ErrLayout, err)
	}
	if err != nil {
		return nil, err
	}
	return image.OpenArchive(file), nil
}

// importTar imports a layout's blobs into containerd, names the chosen image by its digest, and
// unpacks it. If digest is set, the image must have it.
func (r *Runtime) importTar(ctx context.Context, from io.Reader, selected, digest string) (name string, err error) {
	ctx, done, err := r.client.WithLease(ctx) // prevents garbage collection meanwhile
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done(context.WithoutCancel(ctx))) }()
	store := r.client.ContentStore()
	index, err := archive.ImportIndex(ctx, store, from)
	if err != nil {
		return "", fmt.Errorf("%w: %w", image.ErrLayout, err)
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // padding after the end of the tar
		return "", err
	}
	target, err := choose(ctx, store, index, selected)
	if err != nil {
		return "", err
	}
	if digest != "" && target.Digest.String() != digest {
		return "", fmt.Errorf("the image changed while it was read: %w", image.ErrLayout)
	}
	handler := images.SetChildrenLabels(store, images.FilterPlatforms(images.ChildrenHandler(store), platforms.Default()))
	if err := images.Walk(ctx, handler, target); err != nil {
		return "", fmt.Errorf("%w: %w", image.ErrLayout, err)
	}
	name = diskName + "@" + target.Digest.String()
	r.uses.want(name)
	entry := images.Image{Name: name, Target: target}
	_, err = r.client.ImageService().Create(ctx, entry)
	if errdefs.IsAlreadyExists(err) {
		_, err = r.client.ImageService().Update(ctx, entry, "target")
	}
	if err != nil {
		return "", err
	}
	return name, client.NewImage(r.client, entry).Unpack(ctx, r.config.Snapshotter)
}

// choose reads the imported index and selects the image.
func choose(ctx context.Context, store content.Provider, index ocispec.Descriptor, selected string) (ocispec.Descriptor, error) {
	data, err := content.ReadBlob(ctx, store, index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	digest, err := image.Choose(data, selected)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var parsed ocispec.Index
	if err := json.Unmarshal(data, &parsed); err != nil {
		return ocispec.Descriptor{}, err
	}
	at := slices.IndexFunc(parsed.Manifests, func(d ocispec.Descriptor) bool { return d.Digest.String() == digest })
	if at < 0 {
		return ocispec.Descriptor{}, fmt.Errorf("index.json: %w", image.ErrLayout)
	}
	return parsed.Manifests[at], nil
}

// unpacked is what a start needs to know about an image.
type unpacked struct {
	chain string // parent snapshot of the writable layer
	base  base
}

// imageCache caches the content of images, so that a start asks containerd only for the snapshot.
// Names are bound to digests, so entries never become invalid. A full cache is cleared.
type imageCache struct {
	mu    sync.Mutex
	known map[string]unpacked
}

const maxCached = 1024

func newImageCache() *imageCache { return &imageCache{known: map[string]unpacked{}} }

// of returns an image that Fetch returned. The lock is not held during the call to containerd: two
// callers may ask, and both get the same answer.
func (c *imageCache) of(ctx context.Context, from *client.Client, name, snapshotter string) (unpacked, error) {
	c.mu.Lock()
	found, ok := c.known[name]
	c.mu.Unlock()
	if ok {
		return found, nil
	}
	found, err := inspect(ctx, from, name, snapshotter)
	if err != nil {
		return unpacked{}, fmt.Errorf("image %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCached {
		clear(c.known)
	}
	c.known[name] = found
	return found, nil
}

// forget drops a deleted image.
func (c *imageCache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}

func inspect(ctx context.Context, from *client.Client, name, snapshotter string) (unpacked, error) {
	found, err := from.GetImage(ctx, name)
	if errdefs.IsNotFound(err) {
		return unpacked{}, fmt.Errorf("not on this node: %w: %w", runtime.ErrInvalid, err)
	}
	if err != nil {
		return unpacked{}, err
	}
	if !strings.HasSuffix(name, "@"+found.Target().Digest.String()) {
		return unpacked{}, fmt.Errorf("is %s: %w", found.Target().Digest, runtime.ErrInvalid)
	}
	if err := found.Unpack(ctx, snapshotter); err != nil && !errdefs.IsAlreadyExists(err) {
		return unpacked{}, err
	}
	layers, err := found.RootFS(ctx)
	if err != nil {
		return unpacked{}, err
	}
	spec, err := found.Spec(ctx)
	if err != nil {
		return unpacked{}, err
	}
	return unpacked{
		chain: identity.ChainID(layers).String(),
		base: base{
			env: append([]string{usualPath}, spec.Config.Env...), workDir: spec.Config.WorkingDir,
			args: slices.Concat(spec.Config.Entrypoint, spec.Config.Cmd),
		},
	}, nil
}

// usualPath is the PATH of an image without one, as in Docker.
const usualPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// snapshot creates the task's writable layer. It is a root of containerd's garbage collection until
// the task is removed.
func (r *Runtime) snapshot(ctx context.Context, id runtime.TaskID, chain string) ([]*types.Mount, error) {
	service := r.client.SnapshotService(r.config.Snapshotter)
	keep := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "greylag"})
	mounts, err := service.Prepare(ctx, id.String(), chain, keep)
	if errdefs.IsAlreadyExists(err) { // left by an interrupted start
		if err := service.Remove(ctx, id.String()); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		mounts, err = service.Prepare(ctx, id.String(), chain, keep)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return toProto(mounts), nil
}

func toProto(mounts []mount.Mount) []*types.Mount {
	list := make([]*types.Mount, 0, len(mounts))
	for _, m := range mounts {
		list = append(list, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return list
}
