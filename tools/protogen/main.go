// Command protogen compiles the protocol files under -src and runs the Go and
// Connect generators on them, so that generating needs no program but go. It also
// writes docs/api.md.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	src := flag.String("src", "../api", "folder that import paths are relative to")
	out := flag.String("out", "../api/gen", "folder to write to")
	page := flag.String("page", "../docs/api.md", "page to write for authors of clients")
	flag.Parse()
	if err := run(*src, *out, *page); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(src, out, page string) error {
	names, err := protoFiles(src)
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{src}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := map[string]bool{}
	for _, f := range files {
		addFile(req, f, seen)
	}
	req.Parameter = proto.String("paths=source_relative")
	if err := generate("protoc-gen-go", req, out); err != nil {
		return err
	}
	req.Parameter = proto.String("paths=source_relative,simple")
	if err := generate("protoc-gen-connect-go", req, out); err != nil {
		return err
	}
	var described []protoreflect.FileDescriptor
	for _, f := range files {
		described = append(described, f)
	}
	return writePage(page, described)
}

func protoFiles(src string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(src, "*", "*", "*.proto"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range paths {
		name, err := filepath.Rel(src, p)
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(name))
	}
	sort.Strings(names)
	return names, nil
}

// addFile appends f after everything it imports, as generators expect.
func addFile(req *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	imports := f.Imports()
	for i := range imports.Len() {
		addFile(req, imports.Get(i).FileDescriptor, seen)
	}
	fd := protoutil.ProtoFromFileDescriptor(f)
	req.ProtoFile = append(req.ProtoFile, proto.Clone(fd).(*descriptorpb.FileDescriptorProto))
}

func generate(plugin string, req *pluginpb.CodeGeneratorRequest, out string) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	var res pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &res); err != nil {
		return err
	}
	if res.Error != nil {
		return fmt.Errorf("%s: %s", plugin, res.GetError())
	}
	for _, f := range res.File {
		path := filepath.Join(out, f.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
