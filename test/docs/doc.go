// Package docs checks the documents.
//
// Each document with examples gets its own cluster, on which the examples run from top to bottom: a
// block marked "bash file=NAME" is written to that file, and every line after "$ " of a block marked
// "console" is executed and must print the lines that follow it. White space and clock times are not
// compared, "..." stands for any lines or for the rest of its line, and a command without an answer
// only has to succeed.
//
// Other commands of the documents are not executed: the programs check their options. Links, and the
// names of files and tests, must exist.
package docs
