// Package docs runs the examples of the documents. Each document gets a cluster
// of its own and is worked through from top to bottom, as a reader would: a
// block marked "bash file=NAME" is written to that file, and of a block marked
// "console" every line after "$ " is typed and what follows must be its answer.
//
// It decides what counts as the same answer: white space and clock times do not
// matter, "..." stands for any lines or for the rest of its line, and a command
// shown without an answer only has to succeed.
package docs
