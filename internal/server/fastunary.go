package server

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"
)

const (
	plainType = "application/proto"
	// maxPlain bounds a call that is answered plainly: a submission of one job has some
	// hundreds of bytes, and reading is not what a large one costs.
	maxPlain = 64 << 10
)

// plainTypes is the header's value, which nobody changes.
var plainTypes = []string{plainType}

// isPlain reports whether a call comes as Connect's own protocol sends it in protobuf: whole,
// neither compressed nor with a deadline.
func isPlain(r *http.Request) bool {
	h := r.Header
	version := h.Get("Connect-Protocol-Version")
	return r.Method == http.MethodPost && h.Get("Content-Type") == plainType && (version == "1" || version == "") &&
		h.Get("Content-Encoding") == "" && h.Get("Connect-Timeout-Ms") == "" &&
		0 < r.ContentLength && r.ContentLength <= maxPlain
}

// fastUnary answers plain calls of a procedure that is called thousands of times a second.
// Connect's way, which is open for any protocol, encoding and compression, took a twentieth
// of a leader's processor time. Whatever else comes, and what cannot be read, goes that way.
func fastUnary[Q, A any, PQ interface {
	*Q
	proto.Message
}, PA interface {
	*A
	proto.Message
}](s *Server, handle func(context.Context, PQ) (PA, error), connects http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPlain(r) {
			connects.ServeHTTP(w, r)
			return
		}
		data := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, data)
		question := PQ(new(Q))
		if err != nil || proto.Unmarshal(data, question) != nil {
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data[:n]), r.Body))
			connects.ServeHTTP(w, r)
			return
		}
		var answer PA
		if err = checkEnums(question); err == nil {
			answer, err = handle(r.Context(), question)
		}
		if err == nil {
			data, err = proto.MarshalOptions{}.MarshalAppend(data[:0], answer)
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header()["Content-Type"] = plainTypes
		_, _ = w.Write(data) // fails only when nobody listens
	})
}
