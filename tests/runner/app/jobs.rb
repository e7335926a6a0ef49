# frozen_string_literal: true

class Add
  def perform(left, right = 1, times: 1)
    (left + right) * times
  end
end

class Whose
  def perform
    job = Quvatlh.current
    [job.task, job.action, job.attempt, job.token, job.worker, job.payload]
  end
end

class Speak
  def perform(word)
    puts "#{word} printed"
    warn "#{word} complained"
    system("echo #{word} from a shell")
    Quvatlh.current.log(word, "noted")
    nil
  end
end

class Steps
  def perform
    [10, 60, 100].each do |percent|
      Quvatlh.current.progress(percent, "#{percent} done")
      sleep 0.12
    end
  end
end

class Broken
  def perform
    raise ArgumentError, "no good"
  end
end

class Later
  def perform
    raise Quvatlh::Retry.new("not yet", after: 7)
  end
end

class Never
  def perform
    raise Quvatlh::PermanentFailure, "not at all"
  end
end

class Vanish
  def perform
    exit!(3)
  end
end

class Tidy
  def perform(path)
    Quvatlh.current.progress(0, "begun")
    sleep
  ensure
    File.write(path, "tidied")
  end
end

class Spin
  def perform
    loop { nil }
  end
end

class Shapeless
  def perform
    Float::NAN
  end
end

module Tools
  def self.pid
    Process.pid
  end
end

class Starts
  def perform(path, how)
    command = how == "hides" ? "sleep 1000 & echo $! >#{path}.new" : "echo $$ >#{path}.new; exec sleep 1000"
    how == "hides" ? system(command) : spawn(command)
    sleep 0.005 until File.size?("#{path}.new")
    File.rename("#{path}.new", path)
    Quvatlh.current.progress(0, "begun")
    raise ArgumentError, "no good" if how == "fails"

    sleep if how == "waits"
  end
end

class Finishes
  def perform
    pid = spawn("exec sleep 1000")
    Process.kill(:TERM, pid)
    Process.wait(pid)
    `echo done`
  end
end

class Reads
  def perform
    [system("cat"), $stdin.read, File.readlink("/proc/self/fd/0")]
  end
end

class GivesUp
  def perform
    raise Quvatlh::Cancelled
  end
end

class Misuses
  def perform
    Add.new.perform
  end
end

class Prints
  def perform
    require "logger"
    log = Logger.new($stdout, formatter: ->(_, _, _, text) { "#{text}\n" })
    log.info("logged")
    log.close
    $stdout << "chained" << "\n"
    $stdout.putc("put")
    $stdout.putc(10)
    $stdout.printf("%03d\n", 7)
    print "printed", "\n"
    p :shown
    $stdout.sync = true
    $stdout.binmode.set_encoding("UTF-8")
    written = [$stdout.syswrite("written\n"), $stdout.write_nonblock("é\n", exception: false), $stdout.write("\xff".b, "é", 1, "\n")]
    $stdout.flush.fsync
    written + [$stdout.tty?, $stdout.isatty, $stdout.sync, $stdout.closed?, $stdout.close]
  end
end
