package server

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
)

// maxEntry bounds the commands of one request, below the log's bound of 1 MiB for an entry.
const maxEntry = 1<<20 - 4<<10

// maxInline is the size up to which a script is part of the command that names it; larger ones are
// sent before it, in parts.
const maxInline = 256 << 10

// partSize is the size of such a part.
const partSize = 512 << 10

// blobTime bounds the time for the parts of one blob.
const blobTime = 30 * time.Second

// putBlob stores a large script or environment before a job names it. Repeating it changes nothing.
// It continues when the caller has disconnected: an interrupted upload would occupy one of the few
// uploads for minutes.
func (s *Server) putBlob(ctx context.Context, content []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blobTime)
	defer cancel()
	digest := sha256.Sum256(content)
	for at := 0; at < len(content); at += partSize {
		part := content[at:min(at+partSize, len(content))]
		if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.PutBlob{
			Digest: digest, Size: int64(len(content)), Offset: int64(at), Part: part,
		}); err != nil {
			return err
		}
	}
	return nil
}

// blobsOf collects the scripts and environments of submissions that the state does not have, each
// once.
func blobsOf(subs []wire.Submission, has func(digest [32]byte) bool) (inline, large [][]byte) {
	seen := make(map[[32]byte]bool)
	add := func(digest [32]byte, content []byte) {
		if len(content) == 0 || seen[digest] || has(digest) {
			return
		}
		seen[digest] = true
		if len(content) > maxInline {
			large = append(large, content)
		} else {
			inline = append(inline, content)
		}
	}
	for i := range subs {
		add(subs[i].Spec.Script, subs[i].Script)
		add(subs[i].Spec.Environment, subs[i].Environment)
	}
	return inline, large
}
