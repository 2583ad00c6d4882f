package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/wire"
)

// propose has a command agreed. A refusal is an error.
func propose[T command.Result](ctx context.Context, s *Server, c command.Command) (T, uint64, error) {
	var none T
	result, index, err := s.cfg.Leader.Propose(ctx, c)
	if err != nil {
		return none, 0, err
	}
	if refusal, ok := result.(*command.Refusal); ok {
		return none, 0, refusal
	}
	answer, ok := result.(T)
	if !ok {
		return none, 0, fmt.Errorf("%T was answered by %T", c, result)
	}
	return answer, index, nil
}

// maxRequestID bounds the id that a client gives a request.
const maxRequestID = 128

// requestID makes a client's request id the caller's own, for one operation and
// one part of it. An empty id asks for no guarantee. payload is what was asked, as
// equal bytes for equal requests.
func requestID(c *caller, id string, part int, payload []byte) (command.RequestID, error) {
	var r command.RequestID
	if id == "" {
		return r, nil
	}
	if len(id) > maxRequestID {
		return r, refused(command.InvalidArgument, "use 32 hexadecimal digits", "the request id has %d bytes: at most %d", len(id), maxRequestID)
	}
	key := sha256.Sum256([]byte(c.User.User + "\x00" + strconv.FormatUint(uint64(c.User.UID), 10) + "\x00" + string(c.rpc.Name) + "\x00" + strconv.Itoa(part) + "\x00" + id))
	what := sha256.Sum256(payload)
	copy(r.Key[:], key[:])
	copy(r.Payload[:], what[:])
	return r, nil
}

// maxEntry is what the commands of one request may take, under the log's bound of
// 1 MiB for an entry.
const maxEntry = 1<<20 - 4<<10

// maxInline is the size up to which a script travels in the command that names it;
// larger ones are sent before it, in parts.
const maxInline = 256 << 10

// partSize is the size of such a part.
const partSize = 512 << 10

// blobTime is how long the parts of one blob may take.
const blobTime = 30 * time.Second

// putBlob stores a large script or environment before a job names it. Repeating it
// changes nothing. It goes on when the caller has left: an upload that breaks off would
// take one of the few places for minutes.
func (s *Server) putBlob(ctx context.Context, content []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blobTime)
	defer cancel()
	digest := sha256.Sum256(content)
	for at := 0; at < len(content); at += partSize {
		part := content[at:min(at+partSize, len(content))]
		if _, _, err := propose[*command.Done](ctx, s, &command.PutBlob{
			Digest: digest, Size: int64(len(content)), Offset: int64(at), Part: part,
		}); err != nil {
			return err
		}
	}
	return nil
}

// blobsOf gathers the scripts and environments of submissions that the state does
// not have; each once.
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
