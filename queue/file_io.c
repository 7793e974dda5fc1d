#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "queue/file.h"

static status cause_status(int cause, const char **cure)
{
    switch (cause) {
    case ENOSPC:
    case EDQUOT:
        *cure = "free some space and run the same command again: it resumes";
        return ST_RETRY;
    case EFBIG:
        *cure = "raise the limit on file sizes (ulimit -f, or the file system's own) and run the same command again";
        return ST_RETRY;
    case EMFILE:
    case ENFILE:
        *cure = "raise the limit on open files (ulimit -n)";
        return ST_RETRY;
    case ENOENT:
        *cure = "check the spelling and that the folder exists (mkdir -p makes it)";
        return ST_REJECT;
    case EACCES:
    case EPERM:
        *cure = "check its permissions and those of its folder";
        return ST_REJECT;
    case EROFS:
        *cure = "choose a folder that can be written";
        return ST_REJECT;
    case EISDIR:
        *cure = "a file is needed here";
        return ST_REJECT;
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
        *cure = "check the path";
        return ST_REJECT;
    default:
        *cure = "check the disk and run the same command again: it resumes";
        return ST_RETRY;
    }
}

status st_errno(struct error *err, int cause, const char *doing, const char *path)
{
    const char *cure;
    status st = cause_status(cause, &cure);
    char text[128];

    if (strerror_r(cause, text, sizeof text) != 0)
        strcpy(text, "unknown error");
    return error_set(err, st, "cannot %s %s: %s; %s", doing, path, text, cure);
}

bool file_write_at(int fd, const void *bytes, size_t n, int64_t at)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t wrote = pwrite(fd, p, n, (off_t)at);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (wrote == 0)
                errno = ENOSPC;
            return false;
        }
        p += wrote;
        n -= (size_t)wrote;
        at += wrote;
    }
    return true;
}

int64_t file_read_at(int fd, void *bytes, size_t n, int64_t at)
{
    char *p = bytes;
    size_t have = 0;

    while (have < n) {
        ssize_t got = pread(fd, p + have, n - have, (off_t)at + (off_t)have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (int64_t)have;
}

bool file_sync(int fd, bool all)
{
    int done;

    do
        done = all ? fsync(fd) : fdatasync(fd);
    while (done != 0 && errno == EINTR);
    return done == 0;
}

bool file_cut(int fd, int64_t bytes)
{
    int done;

    do
        done = ftruncate(fd, (off_t)bytes);
    while (done != 0 && errno == EINTR);
    return done == 0;
}

char *path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder;

    if (slash == NULL)
        return mem_copy_text(".");
    folder = mem_copy_text(path);
    folder[slash == path ? 1 : slash - path] = '\0';
    return folder;
}

char *path_join(const char *path, const char *suffix)
{
    size_t n = strlen(path);
    char *out = mem_take(n + strlen(suffix) + 1);

    memcpy(out, path, n);
    strcpy(out + n, suffix);
    return out;
}

status folder_sync(const char *path_in_it, struct error *err)
{
    char *folder = path_folder(path_in_it);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    status st = ST_OK;

    /* Some network file systems cannot sync a folder (EINVAL); there a rename is as durable as it gets. */
    if (fd < 0 || (!file_sync(fd, true) && errno != EINVAL))
        st = st_errno(err, errno, "sync the folder", folder);
    if (fd >= 0)
        close(fd);
    free(folder);
    return st;
}

status path_resolve(const char *path, char **out, struct error *err)
{
    char *folder = path_folder(path), *real = NULL, *base;
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    struct stat s;
    status st = ST_OK;

    *out = NULL;
    if (name[0] == '\0')
        TRY(st_errno(err, EISDIR, "write", path));
    if (stat(path, &s) == 0) {
        if (S_ISDIR(s.st_mode))
            TRY(st_errno(err, EISDIR, "write", path));
        if (!S_ISREG(s.st_mode))
            TRY(error_set(err, ST_REJECT, "the output %s is not a regular file: what is done is read back from it; give a "
                          "path to a file", path));
        real = realpath(path, NULL);
        if (real == NULL)
            TRY(st_errno(err, errno, "write", path));
        *out = mem_copy_text(real);
        goto out;
    }
    if (errno != ENOENT || lstat(path, &s) == 0)      /* a link to nowhere must not be taken for a new file */
        TRY(st_errno(err, errno ? errno : ENOENT, "write", path));
    real = realpath(folder, NULL);
    if (real == NULL)
        TRY(st_errno(err, errno, "write into the folder", folder));
    base = path_join(real, strcmp(real, "/") == 0 ? "" : "/");
    *out = path_join(base, name);
    free(base);
out:
    free(real);
    free(folder);
    return st;
}
